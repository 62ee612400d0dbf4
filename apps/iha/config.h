// Configuration files of the command line: one flat JSON object whose keys are option names without dashes,
// as
// `{"d-model": 64, "patterns": "causal*4"}`. A run's folder keeps its resolved options in this form, so that
// `--config runs/NAME/config.json` repeats it. Not here: what the options mean.
#pragma once

#include <string>
#include <vector>

namespace iha::app {

// `arguments` (without the program's name) with every `--config FILE` replaced by the options of that file;
// an option that is also given on the command line is left out, so that the command line wins. Throws
// std::invalid_argument for a file that cannot be read or is no flat object of strings, numbers, booleans and
// lists of these.
std::vector<std::string> with_config(const std::vector<std::string>& arguments);

}  // namespace iha::app
