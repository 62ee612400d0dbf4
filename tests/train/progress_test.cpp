#include "iha/train/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

namespace iha::train {
namespace {

using testing::HasSubstr;

ProgressState half_way() {
  return {"lm", 0, 450, 900, 30.0, "loss 2.13"};
}

TEST(ProgressLine, ShowsShareCountsNotePaceAndTimeLeft) {
  EXPECT_EQ(progress_line(half_way(), 80),
            "lm  [===============>              ]   50 %  450/900  loss 2.13  15/s  0:30 left");
}

TEST(ProgressLine, CountsPaceFromWhereTheRunWentOn) {
  ProgressState state = half_way();
  state.start = 420;  // 30 steps in 30 seconds, 450 are left
  EXPECT_THAT(progress_line(state, 80), HasSubstr("1/s  7:30 left"));
}

TEST(ProgressLine, FitsAnyWidth) {
  for (int width = 0; width < 130; ++width) {
    EXPECT_LE(progress_line(half_way(), width).size(), static_cast<std::size_t>(width));
  }
  EXPECT_EQ(progress_line(half_way(), 50).find('['), std::string::npos);  // no room for a bar
}

TEST(ProgressLine, IsWholeAtBothEnds) {
  EXPECT_EQ(progress_line({"lm", 0, 0, 10, 0, ""}, 40), "lm  [>                    ]    0 %  0/10");
  EXPECT_THAT(progress_line({"lm", 0, 10, 10, 5, ""}, 60), HasSubstr("=]  100 %  10/10  2/s  0:00 left"));
  EXPECT_THAT(progress_line({"lm", 0, 0, 0, 0, ""}, 40), HasSubstr("100 %  0/0"));
}

TEST(ProgressLine, WritesHours) {
  EXPECT_THAT(progress_line({"lm", 0, 1, 2, 3723, ""}, 80), HasSubstr("1:02:03 left"));
}

TEST(ProgressBar, WritesNothingWithoutATerminal) {
  std::ostringstream stream;
  {
    ProgressBar bar(stream, 0, "lm", 0, 10);
    bar.update(5, "loss 1");
  }
  EXPECT_EQ(stream.str(), "");
}

TEST(ProgressBar, DrawsOverItselfAndEndsItsLine) {
  std::ostringstream stream;
  {
    ProgressBar bar(stream, 60, "lm", 0, 3);
    for (int done = 1; done <= 3; ++done) bar.update(done, "loss 1");  // too quick to draw each
  }
  EXPECT_THAT(stream.str(), testing::StartsWith("\rlm  ["));
  EXPECT_THAT(stream.str(), HasSubstr("3/3"));
  EXPECT_THAT(stream.str(), testing::Not(HasSubstr("2/3")));
  EXPECT_EQ(stream.str().back(), '\n');
}

TEST(TerminalWidth, IsZeroForAFile) {
  const int descriptor = ::open("/dev/null", O_WRONLY);
  EXPECT_EQ(terminal_width(descriptor), 0);
  ::close(descriptor);
}

}  // namespace
}  // namespace iha::train
