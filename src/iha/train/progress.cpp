// See progress.h.
#include "iha/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace iha::train {

namespace {

constexpr int kUsualWidth = 80;       // of a terminal that does not say
constexpr int kWidestBar = 30;        // more shows nothing more
constexpr int kNarrowestBar = 5;      // less shows nothing
constexpr double kDrawSeconds = 0.1;  // the eye follows no faster

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  char text[40];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

std::string bar(double share, int columns) {
  const int full = static_cast<int>(share * columns);
  std::string text(static_cast<std::size_t>(columns), ' ');
  std::fill_n(text.begin(), full, '=');
  if (full < columns) text[static_cast<std::size_t>(full)] = '>';
  return "[" + text + "]";
}

}  // namespace

int terminal_width(int descriptor) {
  if (::isatty(descriptor) == 0) return 0;
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

std::string progress_line(const ProgressState& state, int width) {
  const double share =
      state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 1.0;
  char counts[80];
  std::snprintf(counts, sizeof counts, "%3.0f %%  %lld/%lld", 100 * share, static_cast<long long>(state.done),
                static_cast<long long>(state.total));
  std::string tail = counts;
  if (!state.note.empty()) tail += "  " + state.note;
  const auto fresh = static_cast<double>(state.done - state.start);
  if (fresh > 0 && state.seconds > 0) {
    const double speed = fresh / state.seconds;
    char pace[40];
    std::snprintf(pace, sizeof pace, "  %.3g/s  ", speed);
    tail += pace + clock_text(static_cast<double>(state.total - state.done) / speed) + " left";
  }
  // Two brackets and two gaps of two blanks surround the bar.
  const int room = width - static_cast<int>(state.title.size() + tail.size()) - 6;
  std::string line = state.title + "  ";
  if (room >= kNarrowestBar) line += bar(share, std::min(room, kWidestBar)) + "  ";
  line += tail;
  return line.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

ProgressBar::ProgressBar(std::ostream& stream, int width, std::string title, int64_t start, int64_t total)
    : stream_(stream), width_(width), begin_(std::chrono::steady_clock::now()) {
  state_.title = std::move(title);
  state_.start = state_.done = start;
  state_.total = total;
}

ProgressBar::~ProgressBar() {
  if (width_ == 0) return;
  draw();
  stream_ << '\n' << std::flush;
}

void ProgressBar::update(int64_t done, const std::string& note) {
  state_.done = done;
  state_.note = note;
  if (width_ == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (std::chrono::duration<double>(now - drawn_).count() >= kDrawSeconds) draw();
}

void ProgressBar::draw() {
  drawn_ = std::chrono::steady_clock::now();
  state_.seconds = std::chrono::duration<double>(drawn_ - begin_).count();
  // Back to the line's beginning, the line, and erase what is left of a longer one. The last column stays
  // free: some terminals wrap there.
  stream_ << '\r' << progress_line(state_, width_ - 1) << "\x1b[K" << std::flush;
}

}  // namespace iha::train
