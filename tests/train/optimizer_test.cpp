#include "iha/train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/support.h"

namespace iha::train {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(TrainableParameters, NamesATiedParameterOnceAndLeavesFrozenOnesOut) {
  SmallNet net;
  net->norm->bias.set_requires_grad(false);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : trainable_parameters(*net)) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("alpha_q", "q_mix", "unused", "embedding.weight", "linear.weight",
                                          "linear.bias", "norm.weight"));
}

TEST(DecayingParameters, AreMatricesOfLinearMapsAlone) {
  SmallNet net;
  EXPECT_THAT(decaying_parameters(*net), ElementsAre("linear.weight"));
  // A read-out of its own is a linear map like any other.
  net->replace_module("readout", torch::nn::Linear(6, 7));
  EXPECT_THAT(decaying_parameters(*net), UnorderedElementsAre("linear.weight", "readout.weight"));
}

TEST(AdamW, DecaysOneGroupOnly) {
  SmallNet net;
  auto optimizer = make_adamw(*net, {.weight_decay = 0.5});
  set_rate(*optimizer, 0.1);
  const auto linear = net->linear->weight.detach().clone();
  const auto mix = net->mix.detach().clone();
  for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  optimizer->step();
  // With a zero gradient the step is the decay alone: w (1 - rate * decay).
  EXPECT_TRUE(torch::allclose(net->linear->weight, linear * (1 - 0.1 * 0.5)));
  EXPECT_TRUE(same_bits(net->mix, mix));
}

// Two tensors of gradients with the global norm 5.
struct TwoGradients {
  TwoGradients() {
    net->linear->weight.mutable_grad() = torch::zeros({6, 6});
    net->linear->weight.mutable_grad()[2][3] = 3.0;
    net->mix.mutable_grad() = torch::zeros({6, 6});
    net->mix.mutable_grad()[0][0] = -4.0;
  }
  double of_linear() const { return net->linear->weight.grad()[2][3].item<double>(); }
  double of_mix() const { return net->mix.grad()[0][0].item<double>(); }
  SmallNet net;
  std::unique_ptr<torch::optim::AdamW> optimizer = make_adamw(*net, {});
};

TEST(ScaleAndClip, LimitsTheGlobalNorm) {
  TwoGradients given;
  EXPECT_DOUBLE_EQ(scale_and_clip(*given.optimizer, 1.0, 1.0), 5.0);
  EXPECT_FLOAT_EQ(given.of_linear(), 0.6);
  EXPECT_FLOAT_EQ(given.of_mix(), -0.8);
}

TEST(ScaleAndClip, LeavesASmallNormAndTakesNoLimit) {
  TwoGradients small, unlimited;
  EXPECT_DOUBLE_EQ(scale_and_clip(*small.optimizer, 1.0, 5.0), 5.0);
  EXPECT_EQ(small.of_linear(), 3.0);
  EXPECT_DOUBLE_EQ(scale_and_clip(*unlimited.optimizer, 10.0, 0.0), 50.0);
  EXPECT_EQ(unlimited.of_mix(), -40.0);
}

TEST(ScaleAndClip, MeasuresTheNormAfterTheFactor) {
  TwoGradients given;
  EXPECT_DOUBLE_EQ(scale_and_clip(*given.optimizer, 0.1, 1.0), 0.5);
  EXPECT_FLOAT_EQ(given.of_linear(), 0.3);
}

TEST(ScaleAndClip, ReportsANormThatIsNotFinite) {
  TwoGradients given;
  given.net->mix.mutable_grad()[1][1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(scale_and_clip(*given.optimizer, 0.1, 1.0)));
  EXPECT_EQ(given.of_linear(), 3.0);
}

}  // namespace
}  // namespace iha::train
