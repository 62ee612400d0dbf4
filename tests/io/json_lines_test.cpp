#include "iha/io/json_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "iha/io/atomic_file.h"
#include "tests/io/scratch.h"

namespace iha::io {
namespace {

TEST(JsonLines, ValuesReadBackExactly) {
  const double third = 1.0 / 3.0;
  const std::string line = to_json({{"step", int64_t{9007199254740993}},
                                    {"loss", third},
                                    {"tiny", 5e-324},
                                    {"bad", std::nan("")},
                                    {"worse", -std::numeric_limits<double>::infinity()},
                                    {"best", true},
                                    {"text \"\\", std::string("a\nb\x01 ü \xFF")}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["step"].get<int64_t>(), 9007199254740993);
  EXPECT_EQ(parsed["loss"].get<double>(), third);
  EXPECT_EQ(parsed["tiny"].get<double>(), 5e-324);
  EXPECT_TRUE(parsed["bad"].is_null());
  EXPECT_TRUE(parsed["worse"].is_null());
  EXPECT_EQ(parsed["best"], true);
  EXPECT_EQ(parsed["text \"\\"], "a\nb\x01 ü \uFFFD");
  EXPECT_EQ(to_json(JsonRecord{}), "{}");
}

TEST(JsonLines, EachLineIsThereAtOnceAndMoreAreAppended) {
  const Scratch scratch;
  {
    JsonLines log(scratch / "run/log.jsonl");
    log.write({{"step", int64_t{1}}});
    EXPECT_EQ(read_text(scratch / "run/log.jsonl"), "{\"step\": 1}\n");
  }
  JsonLines(scratch / "run/log.jsonl").write({{"step", int64_t{2}}});
  EXPECT_EQ(read_text(scratch / "run/log.jsonl"), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST(JsonLines, ALineThatAKillCutInTwoGoes) {
  const Scratch scratch;
  std::ofstream(scratch / "a") << "{\"step\": 1}\n{\"st";
  JsonLines(scratch / "a").write({{"step", int64_t{2}}});
  EXPECT_EQ(read_text(scratch / "a"), "{\"step\": 1}\n{\"step\": 2}\n");
  std::ofstream(scratch / "b") << "{\"st";
  JsonLines(scratch / "b").write({});
  EXPECT_EQ(read_text(scratch / "b"), "{}\n");
}

}  // namespace
}  // namespace iha::io
