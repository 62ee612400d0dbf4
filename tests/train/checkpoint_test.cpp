#include "iha/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "iha/io/atomic_file.h"
#include "iha/nn/tensor_file.h"
#include "iha/train/random_state.h"
#include "tests/io/scratch.h"
#include "tests/train/support.h"

namespace iha::train {
namespace {

namespace fs = std::filesystem;
using nn::NamedTensors, nn::save_tensors, nn::to_tensor;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

// A net after a few steps, with moments, and its checkpoint folder.
struct Trained {
  Trained() : objective(net), trainer(*net, objective, TrainerSettings{}, scratch.path()) {
    for (int i = 0; i < 3; ++i) trainer.step();
  }
  CheckpointFolder folder() const { return CheckpointFolder(scratch.path()); }

  io::Scratch scratch;
  SmallNet net;
  SmallObjective objective;
  Trainer trainer;
};

// Loading the folder's latest checkpoint into a new net.
std::string loading_fault(const fs::path& folder) {
  SmallNet net;
  const auto before = net->linear->weight.detach().clone();
  const auto random = random_state();
  auto optimizer = make_adamw(*net, {});
  const std::string message = message_of([&] { CheckpointFolder(folder).load(*net, *optimizer); });
  EXPECT_TRUE(same_bits(net->linear->weight, before));  // nothing is half loaded
  EXPECT_TRUE(same_bits(random_state(), random));
  EXPECT_TRUE(optimizer->state().empty());
  return message;
}

// The step of the latest checkpoint, which must load.
int64_t loaded_step(const fs::path& folder) {
  SmallNet net;
  auto optimizer = make_adamw(*net, {});
  return CheckpointFolder(folder).load(*net, *optimizer).step;
}

TEST(Model, IsStoredUnderItsOwnNamesTiedWeightsOnce) {
  const io::Scratch scratch;
  SmallNet net;
  save_model(scratch / "model.safetensors", *net);
  const auto file = io::SafeTensors::open(scratch / "model.safetensors");
  std::vector<std::string> names;
  for (const auto& [name, view] : file.tensors()) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("embedding.weight", "linear.weight", "linear.bias", "norm.weight",
                                          "norm.bias", "alpha_q", "q_mix", "unused", "count"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(Model, LoadsIntoAnotherAndKeepsWeightsTied) {
  const io::Scratch scratch;
  SmallNet net, other;
  {
    const torch::NoGradGuard no_grad;
    net->count.add_(3);
    net->linear->weight.copy_(net->linear->weight.t().contiguous());
  }
  save_model(scratch / "model.safetensors", *net);
  load_model(scratch / "model.safetensors", *other);
  EXPECT_TRUE(same_bits(net->linear->weight, other->linear->weight));
  EXPECT_TRUE(same_bits(net->embedding->weight, other->readout->weight));
  EXPECT_TRUE(other->embedding->weight.is_same(other->readout->weight));
  EXPECT_TRUE(same_bits(net->count, other->count));
}

TEST(Model, ValuesOfViewsAndTransposesSurvive) {
  const io::Scratch scratch;
  const auto matrix = torch::arange(6, at::kFloat).reshape({2, 3});
  save_tensors(scratch / "t.safetensors",
               {{"transposed", matrix.t()}, {"row", matrix[1]}, {"empty", torch::empty({0, 4})}});
  const auto file = io::SafeTensors::open(scratch / "t.safetensors");
  EXPECT_TRUE(same_bits(to_tensor(file.at("transposed"), "transposed"), matrix.t().contiguous()));
  EXPECT_TRUE(same_bits(to_tensor(file.at("row"), "row"), matrix[1]));
  EXPECT_EQ(to_tensor(file.at("empty"), "empty").sizes(), (std::vector<int64_t>{0, 4}));
}

TEST(Model, KeepsEveryDtype) {
  const io::Scratch scratch;
  for (const auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                           at::kBFloat16, at::kFloat, at::kDouble}) {
    const auto values = torch::tensor({0, 1, 1, 0}).to(dtype);
    save_tensors(scratch / "t.safetensors", {{"t", values}});
    EXPECT_TRUE(same_bits(to_tensor(io::SafeTensors::open(scratch / "t.safetensors").at("t"), "t"), values))
        << dtype;
  }
  EXPECT_THAT(message_of([&] {
                save_tensors(scratch / "t.safetensors", {{"t", torch::zeros({1}, at::kComplexDouble)}});
              }),
              HasSubstr("tensor t"));
}

TEST(Model, RefusesWhatDoesNotFit) {
  const io::Scratch scratch;
  const auto file = scratch / "model.safetensors";
  const auto fault = [&](const NamedTensors& tensors) {
    save_tensors(file, tensors);
    SmallNet net;
    return message_of([&] { load_model(file, *net); });
  };
  SmallNet net;
  NamedTensors all;
  for (const auto& item : net->named_parameters()) {
    if (item.key() != "readout.weight") all.emplace_back(item.key(), item.value());
  }
  all.emplace_back("count", net->count);
  EXPECT_EQ(fault(all), "");
  NamedTensors changed = all;
  changed.pop_back();
  EXPECT_THAT(fault(changed), HasSubstr("tensor count of the model is missing"));
  changed = all;
  changed.emplace_back("more", torch::zeros({1}));
  EXPECT_THAT(fault(changed), HasSubstr("tensor more is unknown"));
  changed = all;
  changed.back().second = torch::zeros({3}, at::kLong);
  EXPECT_THAT(fault(changed), HasSubstr("tensor count is Long[3], expected Long[2]"));
  changed.back().second = torch::zeros({2}, at::kFloat);
  EXPECT_THAT(fault(changed), HasSubstr("tensor count is Float[2], expected Long[2]"));
}

TEST(Folder, KeepsTheLatestAndTheBest) {
  Trained given;
  given.trainer.save_checkpoint(/*best=*/true);
  given.trainer.step();
  given.trainer.save_checkpoint();
  given.trainer.step();
  given.trainer.save_checkpoint();
  EXPECT_THAT(names_in(given.scratch.path()),
              UnorderedElementsAre("latest", "best", "step-0000000003", "step-0000000005"));
  EXPECT_THAT(names_in(given.scratch.path() / "step-0000000005"),
              UnorderedElementsAre("model.safetensors", "training.safetensors"));
}

TEST(Folder, RemovesWhatAKilledRunLeft) {
  Trained given;
  given.trainer.save_checkpoint();
  // Killed while writing step 4, and between the renames of step 5: neither is named by `latest`.
  fs::create_directories(given.scratch / ".step-0000000004.tmp");
  fs::create_directories(given.scratch / "step-0000000005");
  std::ofstream(given.scratch / "step-0000000005" / "model.safetensors") << "half";
  EXPECT_EQ(given.folder().latest(), given.scratch / "step-0000000003");
  given.trainer.step();
  given.trainer.step();
  given.trainer.save_checkpoint();
  EXPECT_THAT(names_in(given.scratch.path()), UnorderedElementsAre("latest", "step-0000000005"));
  EXPECT_EQ(loaded_step(given.scratch.path()), 5);
}

TEST(Folder, IsEmptyAtFirst) {
  const io::Scratch scratch;
  EXPECT_FALSE(CheckpointFolder(scratch.path()).latest().has_value());
  EXPECT_THAT(loading_fault(scratch.path()), HasSubstr("holds no checkpoint"));
}

TEST(Folder, RefusesAPointerThatIsNoCheckpoint) {
  Trained given;
  given.trainer.save_checkpoint();
  for (const char* name : {"../elsewhere", "step-", "", "step-1/..", "step-12x"}) {
    io::replace_file(given.scratch / "latest", name);
    EXPECT_THAT(loading_fault(given.scratch.path()), HasSubstr("is no checkpoint's name")) << name;
  }
  io::replace_file(given.scratch / "latest", "step-0000000099\n");
  EXPECT_THAT(loading_fault(given.scratch.path()), HasSubstr("step-0000000099"));
}

// ---- Files that are not what they were ----

struct Damaged : testing::Test {
  Damaged() { given.trainer.save_checkpoint(); }
  fs::path model() const { return given.scratch / "step-0000000003" / "model.safetensors"; }
  fs::path training() const { return given.scratch / "step-0000000003" / "training.safetensors"; }
  // Writes training.safetensors anew after `change`.
  void rewrite(const std::function<void(NamedTensors&, io::Metadata&)>& change) const {
    NamedTensors tensors;
    io::Metadata metadata;
    {
      const auto file = io::SafeTensors::open(training());
      metadata = file.metadata();
      for (const auto& [name, view] : file.tensors()) tensors.emplace_back(name, to_tensor(view, name));
    }
    change(tensors, metadata);
    save_tensors(training(), tensors, metadata);
  }
  std::string fault() const { return loading_fault(given.scratch.path()); }

  Trained given;
};

TEST_F(Damaged, TruncatedFilesAreRefusedAtEveryLength) {
  for (const fs::path& path : {model(), training()}) {
    const auto whole = io::read_text(path);
    for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 37) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
      EXPECT_NE(fault(), "") << path << " cut to " << length;
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
  }
}

TEST_F(Damaged, MissingFilesAreNamed) {
  fs::remove(training());
  EXPECT_THAT(fault(), HasSubstr("training.safetensors"));
  fs::remove(model());
  EXPECT_THAT(fault(), HasSubstr("model.safetensors"));
}

TEST_F(Damaged, MetadataIsChecked) {
  const auto with = [&](const std::string& key, const std::optional<std::string>& value) {
    const auto whole = io::read_text(training());
    rewrite([&](NamedTensors&, io::Metadata& metadata) {
      metadata.erase(key);
      if (value) metadata[key] = *value;
    });
    const std::string message = fault();
    io::replace_file(training(), whole);
    return message;
  };
  EXPECT_THAT(with("step", "3x"), HasSubstr("`step` is `3x`"));
  EXPECT_THAT(with("step", "99999999999999999999"), HasSubstr("`step` is `9999"));
  EXPECT_THAT(with("step", "-1"), HasSubstr("`step` is -1"));
  EXPECT_THAT(with("best", "good"), HasSubstr("`best` is `good`"));
  EXPECT_THAT(with("format", "other"), HasSubstr("format is `other`"));
  EXPECT_THAT(with("batch", std::nullopt), HasSubstr("lacks `batch`"));
  EXPECT_EQ(loaded_step(given.scratch.path()), 3);
}

TEST_F(Damaged, MomentsAreChecked) {
  const auto renamed = [&](const std::string& from, const std::string& to) {
    rewrite([&](NamedTensors& tensors, io::Metadata&) {
      for (auto& [name, tensor] : tensors) {
        if (name == from) name = to;
      }
    });
  };
  renamed("exp_avg.q_mix", "exp_avg.q_mox");
  EXPECT_NE(fault(), "");
  renamed("exp_avg.q_mox", "exp_avg.q_mix");
  EXPECT_EQ(loaded_step(given.scratch.path()), 3);
  rewrite([](NamedTensors& tensors, io::Metadata&) {
    tensors.emplace_back("exp_avg.nobody", torch::zeros({1}));
  });
  EXPECT_THAT(fault(), HasSubstr("exp_avg.nobody is unknown"));
}

TEST_F(Damaged, MomentsOfAnotherShapeAreNamed) {
  rewrite([](NamedTensors& tensors, io::Metadata&) {
    for (auto& [name, tensor] : tensors) {
      if (name == "exp_avg_sq.q_mix") tensor = torch::zeros({2, 3});
    }
  });
  EXPECT_THAT(fault(), HasSubstr("exp_avg_sq.q_mix is Float[2, 3], expected Float[6, 6]"));
}

TEST_F(Damaged, TheGeneratorIsChecked) {
  rewrite([](NamedTensors& tensors, io::Metadata&) {
    for (auto& [name, tensor] : tensors) {
      if (name == "generator") tensor = torch::zeros({8}, at::kByte);
    }
  });
  EXPECT_NE(fault(), "");
}

}  // namespace
}  // namespace iha::train
