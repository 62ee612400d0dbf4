#include "iha/tasks/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "iha/models/loss.h"

namespace iha::tasks {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

torch::Tensor lengths_of(std::vector<int64_t> lengths) {
  return torch::tensor(lengths, torch::kInt64);
}

TEST(CountTags, PaddingNeverCounts) {
  // One of three real tokens right, five of padding "right".
  const auto logits = torch::tensor({{1.f, 1.f, 1.f, -1.f, -1.f, -1.f, -1.f, -1.f}});
  const auto targets = torch::tensor({{1.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}});
  const TagCounts counts = count_tags(logits, targets, lengths_of({3}));
  EXPECT_EQ(counts.valid, 3);
  EXPECT_EQ(counts.correct, 1);
  EXPECT_DOUBLE_EQ(counts.accuracy(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(counts.majority(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.exact_match(), 0);
  // Whatever stands in the padding changes nothing.
  auto other = logits.clone();
  other.slice(1, 3).fill_(kNan);
  EXPECT_EQ(count_tags(other, targets, lengths_of({3})).loss_sum, counts.loss_sum);
}

TEST(CountTags, BatchesAddUpToTheWhole) {
  torch::manual_seed(0);
  const auto logits = torch::randn({7, 9});
  const auto targets = torch::rand({7, 9}).lt(0.3).to(torch::kFloat32);
  const auto lengths = lengths_of({9, 0, 1, 4, 8, 9, 2});
  const TagCounts whole = count_tags(logits, targets, lengths);
  TagCounts sum;
  for (int64_t first = 0; first < 7; first += 3) {
    const int64_t end = std::min<int64_t>(first + 3, 7);
    sum +=
        count_tags(logits.slice(0, first, end), targets.slice(0, first, end), lengths.slice(0, first, end));
  }
  EXPECT_EQ(sum.valid, 33);
  EXPECT_EQ(sum.sequences, 6);  // one is empty
  EXPECT_EQ(sum.correct, whole.correct);
  EXPECT_EQ(sum.positive, whole.positive);
  EXPECT_EQ(sum.exact, whole.exact);
  EXPECT_DOUBLE_EQ(sum.loss_sum, whole.loss_sum);
  // The loss is the one that training minimises; float32 sums of 33 terms of about 1 are off by at most 33
  // roundings.
  const models::LossSum loss = models::tag_loss(logits, targets, lengths);
  EXPECT_EQ(loss.count, whole.valid);
  EXPECT_NEAR(loss.sum.item<double>(), whole.loss_sum, 33 * 33 * 1.2e-7);
}

TEST(CountTags, CountsExactSequencesAndTheBetterConstant) {
  const auto targets = torch::tensor({{1.f, 0.f}, {1.f, 1.f}, {1.f, 0.f}});
  const auto logits = torch::tensor({{2.f, -2.f}, {2.f, -2.f}, {2.f, 2.f}});
  TagCounts counts = count_tags(logits, targets, {});
  EXPECT_DOUBLE_EQ(counts.exact_match(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(counts.accuracy(), 4.0 / 6);
  EXPECT_DOUBLE_EQ(counts.majority(), 4.0 / 6);
  counts = count_tags(logits, targets, lengths_of({2, 1, 1}));
  EXPECT_DOUBLE_EQ(counts.exact_match(), 1);
  EXPECT_DOUBLE_EQ(counts.majority(), 3.0 / 4);
}

TEST(CountTags, ALogitOfZeroOrNanSaysLittle) {
  const auto targets = torch::tensor({{0.f, 1.f, 0.f, 1.f}});
  const auto logits = torch::tensor({{0.f, 0.f, kNan, kNan}});
  EXPECT_EQ(count_tags(logits, targets, {}).correct, 1);  // 0 says 0
  // Far logits neither overflow nor lose the loss.
  const auto far = torch::tensor({{-1e4f, 1e4f, 1e4f, -1e4f}});
  EXPECT_DOUBLE_EQ(count_tags(far, targets, {}).loss_sum, 2e4);
}

TEST(CountTags, NothingGivesNan) {
  for (const auto& shape : {std::vector<int64_t>{0, 5}, {2, 0}, {0, 0}}) {
    const TagCounts counts = count_tags(torch::zeros(shape), torch::zeros(shape), {});
    EXPECT_EQ(counts.valid, 0);
    EXPECT_TRUE(std::isnan(counts.accuracy()));
    EXPECT_TRUE(std::isnan(counts.majority()));
    EXPECT_TRUE(std::isnan(counts.loss()));
    EXPECT_TRUE(std::isnan(counts.exact_match()));
  }
}

TEST(CountTags, RefusesShapesThatDoNotFit) {
  const auto ones = torch::ones({2, 3});
  EXPECT_THROW(count_tags(ones, torch::ones({2, 4}), {}), c10::ValueError);
  EXPECT_THROW(count_tags(ones, ones, lengths_of({3})), c10::ValueError);
  EXPECT_THROW(count_tags(ones, ones, lengths_of({3, 4})), c10::ValueError);
  EXPECT_THROW(count_tags(ones, ones, lengths_of({3, -1})), c10::ValueError);
}

TEST(CountText, CountsBitsOfTheTargetsThatCount) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const auto row = torch::tensor({0.5f, 0.25f, 0.125f, 0.125f}).log();
  const auto logits = row.expand({2, 3, 4}) + 100;
  const auto targets =
      torch::tensor({{0L, 1L, models::kIgnore}, {3L, models::kIgnore, models::kIgnore}}, torch::kInt64);
  const TextCounts counts = count_text(logits, targets);
  EXPECT_EQ(counts.tokens, 3);
  EXPECT_EQ(counts.correct, 1);
  EXPECT_NEAR(counts.bits_per_byte(), (1 + 2 + 3) / 3.0, 1e-5);  // logits of 100 round at 4e-6
  EXPECT_NEAR(counts.loss(), 2 * std::log(2.0), 1e-5);
  TextCounts sum = count_text(logits.slice(0, 0, 1), targets.slice(0, 0, 1));
  EXPECT_NEAR(sum.bits_per_byte(), 1.5, 1e-5);
  sum += count_text(logits.slice(0, 1, 2), targets.slice(0, 1, 2));
  EXPECT_DOUBLE_EQ(sum.loss_sum, counts.loss_sum);  // not the mean of means, 2.25
  EXPECT_DOUBLE_EQ(sum.accuracy(), 1.0 / 3);
}

TEST(CountText, NothingGivesNan) {
  const auto ignored = torch::full({2, 3}, models::kIgnore, torch::kInt64);
  EXPECT_TRUE(std::isnan(count_text(torch::zeros({2, 3, 4}), ignored).bits_per_byte()));
  EXPECT_EQ(count_text(torch::zeros({0, 3, 4}), torch::zeros({0, 3}, torch::kInt64)).tokens, 0);
  EXPECT_THROW(count_text(torch::zeros({2, 3, 4}), ignored.slice(1, 0, 2)), c10::ValueError);
}

}  // namespace
}  // namespace iha::tasks
