// A progress line for terminals: bar, share, steps, what the caller notes (loss, rate) and the time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace iha::train {

// Columns of the terminal behind file descriptor `descriptor`; 0 where it is none.
int terminal_width(int descriptor);

struct ProgressState {
  std::string title;
  int64_t start = 0, done = 0, total = 0;  // `start` of them were done before this process began
  double seconds = 0;                      // since this process began
  std::string note;
};

// One line without its end, at most `width` columns (of ASCII text): `lm  [=====>    ]  45 %  900/2000
// loss 2.13 12.3/s  1:29 left`. The bar gives way first, then the line is cut.
std::string progress_line(const ProgressState& state, int width);

// Draws the line over itself, ten times a second at most.
class ProgressBar {
 public:
  // width 0 (no terminal): draws nothing at all.
  ProgressBar(std::ostream& stream, int width, std::string title, int64_t start, int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, const std::string& note);

 private:
  void draw();

  std::ostream& stream_;
  int width_;
  ProgressState state_;
  std::chrono::steady_clock::time_point begin_, drawn_;
};

}  // namespace iha::train
