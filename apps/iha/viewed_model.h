// From a trained model and an input to what the viewer shows: the weights of every head, gathered a few rows
// at a time, so that no matrix of all tokens and heads is ever held.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "iha/models/language_model.h"
#include "iha/models/token_tagger.h"
#include "iha/report/viewer.h"

namespace iha::app {

struct ViewingOptions {
  std::vector<int64_t> layers;  // those to show, in this order; empty: all
  bool time = false;            // measure each layer, and the same layer with causal and with global heads
};

// One byte a token. Throws std::invalid_argument for an empty text.
report::Viewer view_language(models::LanguageModel model, const std::string& text,
                             const ViewingOptions& options = {});

// A square grid, a cell a token, as its values' digits row by row ("011010001"). Throws std::invalid_argument
// where they are no square that the model reads.
report::Viewer view_grid(models::TokenTagger model, const std::string& cells,
                         const ViewingOptions& options = {});

// A relation with as many elements as the tagger reads, as such a text.
std::string relation_for(const models::TokenTagger& model);

// The weights as BertViz takes them: {"tokens": [N strings], "attention": [layer][1][head][N][N]}, the P x P
// weights of pseudo-heads summed over pseudo-keys and averaged over pseudo-queries. Throws
// std::invalid_argument for more tokens than a viewer holds exactly.
std::string to_bertviz(const report::Viewer& viewer);

}  // namespace iha::app
