#include "iha/models/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace iha::models {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(NextTokenLoss, IsASumOverTheTargetsThatCount) {
  const auto logits = torch::randn({2, 3, 5}, torch::kFloat64).requires_grad_();
  const auto targets = torch::tensor({{1L, kIgnore, 4L}, {kIgnore, 0L, 2L}}, torch::kInt64);
  const LossSum loss = next_token_loss(logits, targets);
  EXPECT_EQ(loss.count, 4);
  double expected = 0;
  for (const auto& [b, n, target] : {std::tuple{0, 0, 1}, {0, 2, 4}, {1, 1, 0}, {1, 2, 2}}) {
    expected += (logits[b][n].logsumexp(0) - logits[b][n][target]).item<double>();
  }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-12);
  loss.sum.backward();
  const auto gradient = logits.grad();
  EXPECT_TRUE(gradient[0][1].eq(0).all().item<bool>());
  EXPECT_TRUE(gradient[1][0].eq(0).all().item<bool>());
  EXPECT_FALSE(gradient[0][0].eq(0).any().item<bool>());
}

// One token of loss 4 and three of mean 2, in micro-batches: 2.5, not 3.
TEST(NextTokenLoss, MicroBatchesAddUp) {
  const auto with_loss = [](double nats) {  // two tokens: the other one has exp(nats) - 1 times the odds
    return torch::tensor({0.0, std::log(std::expm1(nats))});
  };
  const LossSum one = next_token_loss(with_loss(4).reshape({1, 1, 2}), torch::zeros({1, 1}, torch::kInt64));
  const LossSum three = next_token_loss(torch::stack({with_loss(1), with_loss(2), with_loss(3)}).unsqueeze(0),
                                        torch::zeros({1, 3}, torch::kInt64));
  const double mean = (one.sum + three.sum).item<double>() / static_cast<double>(one.count + three.count);
  EXPECT_NEAR(mean, 2.5, 1e-6);
}

TEST(NextTokenLoss, AllIgnoredIsNothing) {
  const auto logits = torch::randn({2, 3, 5}).requires_grad_();
  const LossSum loss = next_token_loss(logits, torch::full({2, 3}, kIgnore, torch::kInt64));
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(loss.sum.item<double>(), 0);
  loss.sum.backward();
  EXPECT_TRUE(logits.grad().eq(0).all().item<bool>());
  EXPECT_EQ(next_token_loss(torch::zeros({0, 3, 5}), torch::zeros({0, 3}, torch::kInt64)).sum.item<double>(),
            0);
}

TEST(NextTokenLoss, RefusesTargetsOutsideTheVocabulary) {
  const auto logits = torch::zeros({1, 2, 5});
  EXPECT_THROW(next_token_loss(logits, torch::tensor({{0, 5}}, torch::kInt64)), c10::ValueError);
  EXPECT_THROW(next_token_loss(logits, torch::tensor({{0, -1}}, torch::kInt64)), c10::ValueError);
  EXPECT_THROW(next_token_loss(logits, torch::zeros({1, 3}, torch::kInt64)), c10::ValueError);
  EXPECT_EQ(
      next_token_loss(logits.to(torch::kBFloat16), torch::zeros({1, 2}, torch::kInt64)).sum.scalar_type(),
      torch::kFloat32);
}

TEST(TagLoss, PaddingNeverCounts) {
  auto logits =
      torch::tensor({{0.5, -1.0, 2.0, 3.0}, {1.0, 0.0, 0.0, 0.0}}, torch::kFloat64).requires_grad_();
  const auto targets = torch::tensor({{1.f, 0.f, 0.f, 1.f}, {0.f, 1.f, 1.f, 1.f}});
  const auto lengths = torch::tensor({3, 1}, torch::kInt64);
  const LossSum loss = tag_loss(logits, targets, lengths);
  EXPECT_EQ(loss.count, 4);
  const auto cost = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_NEAR(loss.sum.item<double>(), cost(-0.5) + cost(-1) + cost(2) + cost(1), 1e-12);
  loss.sum.backward();
  EXPECT_EQ(logits.grad()[0][3].item<double>(), 0);
  EXPECT_TRUE(logits.grad()[1].slice(0, 1).eq(0).all().item<bool>());
  EXPECT_EQ(tag_loss(logits, targets, {}).count, 8);
}

TEST(TagLoss, NanInPaddingReachesNothing) {
  auto logits = torch::tensor({{0.5f, kNan}}).requires_grad_();
  const LossSum loss = tag_loss(logits, torch::ones({1, 2}), torch::tensor({1}, torch::kInt64));
  EXPECT_NEAR(loss.sum.item<double>(), std::log1p(std::exp(-0.5)), 1e-6);
  loss.sum.backward();
  EXPECT_EQ(logits.grad()[0][1].item<float>(), 0);
}

TEST(TagLoss, EmptyIsNothing) {
  EXPECT_EQ(tag_loss(torch::zeros({0, 4}), torch::zeros({0, 4}), {}).sum.item<double>(), 0);
  const LossSum loss = tag_loss(torch::zeros({2, 4}), torch::zeros({2, 4}), torch::zeros({2}, torch::kInt64));
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(loss.sum.item<double>(), 0);
}

TEST(ValidTokens, MarksTokensBeforeTheLength) {
  const auto valid = valid_tokens(torch::tensor({0, 2, 3}, torch::kInt64), 3);
  EXPECT_TRUE(valid.equal(torch::tensor({{0, 0, 0}, {1, 1, 0}, {1, 1, 1}}).to(torch::kBool)));
  EXPECT_THROW(valid_tokens(torch::tensor({4}, torch::kInt64), 3), c10::ValueError);
  EXPECT_THROW(valid_tokens(torch::tensor({-1}, torch::kInt64), 3), c10::ValueError);
  EXPECT_THROW(valid_tokens(torch::tensor({1}, torch::kInt32), 3), c10::ValueError);
}

}  // namespace
}  // namespace iha::models
