#include "iha/train/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <stdexcept>

#include "iha/io/atomic_file.h"
#include "tests/io/scratch.h"

namespace iha::train {
namespace {

using testing::ElementsAre;

StepReport report_of(int64_t step, double loss) {
  StepReport report;
  report.step = step;
  report.loss = loss;
  report.rate = 0.25;
  report.gradient_norm = 2;
  report.tokens = 7;
  report.seconds = 0.5;
  return report;
}

EvaluationReport evaluation_of(int64_t step, double value) {
  return {step, {{"accuracy", value, true}}, true};
}

TEST(RunLog, WritesOneObjectALine) {
  const io::Scratch scratch;
  RunLog log(scratch.path(), 1);
  log.step(report_of(1, 1.5));
  log.evaluation(evaluation_of(1, 0.75));
  EXPECT_EQ(io::read_text(scratch / "train.jsonl"),
            R"({"step": 1, "loss": 1.5, "rate": 0.25, "gradient_norm": 2, "tokens": 7, "seconds": 0.5})"
            "\n"
            R"({"step": 1, "validation_accuracy": 0.75, "best": true})"
            "\n");
}

TEST(RunLog, RecordsEverySoManySteps) {
  const io::Scratch scratch;
  RunLog log(scratch.path(), 3);
  for (int64_t step = 1; step <= 7; ++step) log.step(report_of(step, 1.0 / static_cast<double>(step)));
  EXPECT_THAT(read_curves(scratch.path()).front().steps, ElementsAre(3, 6));
}

TEST(RunLog, LeavesSkippedStepsOut) {
  const io::Scratch scratch;
  RunLog log(scratch.path(), 1);
  StepReport skipped = report_of(1, 0);
  skipped.skipped = true;
  log.step(skipped);
  EXPECT_TRUE(read_curves(scratch.path()).front().steps.empty());
}

TEST(RunLog, GoesOnAfterTheCheckpointsStep) {
  const io::Scratch scratch;
  {
    RunLog log(scratch.path(), 1);
    for (int64_t step = 1; step <= 5; ++step) log.step(report_of(step, 1));
  }
  std::ofstream(scratch / "train.jsonl", std::ios::app) << "{\"step\":6,\"lo";  // cut by a kill
  RunLog log(scratch.path(), 1, /*resumed_at=*/3);
  log.step(report_of(4, 2));
  const Curve loss = read_curves(scratch.path()).front();
  EXPECT_THAT(loss.steps, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(loss.values, ElementsAre(1, 1, 1, 2));
}

TEST(RunLog, BeginsAnewWithoutAResume) {
  const io::Scratch scratch;
  RunLog(scratch.path(), 1).step(report_of(1, 1));
  RunLog(scratch.path(), 1).step(report_of(1, 2));
  EXPECT_THAT(read_curves(scratch.path()).front().values, ElementsAre(2));
}

TEST(ReadCurves, GathersLossAndMetricsAndLeavesOutWhatIsNotFinite) {
  const io::Scratch scratch;
  {
    RunLog log(scratch.path(), 1);
    log.step(report_of(1, 3));
    log.evaluation(evaluation_of(1, 0.5));
    log.step(report_of(2, 2));
    log.evaluation(evaluation_of(2, std::numeric_limits<double>::quiet_NaN()));
    log.evaluation(evaluation_of(3, 0.75));
  }
  const std::vector<Curve> curves = read_curves(scratch.path());
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].name, "loss");
  EXPECT_THAT(curves[0].values, ElementsAre(3, 2));
  EXPECT_EQ(curves[1].name, "validation_accuracy");
  EXPECT_THAT(curves[1].steps, ElementsAre(1, 3));
  EXPECT_THAT(curves[1].values, ElementsAre(0.5, 0.75));
}

TEST(ReadCurves, NamesALineThatIsNoRecord) {
  const io::Scratch scratch;
  std::ofstream(scratch / "train.jsonl") << "{\"step\":1,\"loss\":2}\n[1, 2]\n";
  try {
    read_curves(scratch.path());
    FAIL() << "it was taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("line 2"));
  }
}

}  // namespace
}  // namespace iha::train
