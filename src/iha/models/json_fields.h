// Options to and from JSON objects by naming each field once: a `visit` function calls the visitor with every
// name and field; JsonWriter writes them, JsonReader reads those present and refuses names it was not asked
// for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "iha/core/error.h"

namespace iha::models {

class JsonWriter {
 public:
  explicit JsonWriter(nlohmann::json& json) : json_(json) { json_ = nlohmann::json::object(); }

  template <class Field>
  void operator()(const char* name, const Field& field) {
    json_[name] = field;
  }

  template <class Field>
  void operator()(const char* name, const std::optional<Field>& field) {
    if (field) json_[name] = *field;
  }

 private:
  nlohmann::json& json_;
};

class JsonReader {
 public:
  // `what` names the object in errors. Throws std::invalid_argument where `json` is not an object.
  JsonReader(const nlohmann::json& json, std::string what) : json_(json), what_(std::move(what)) {
    check(json.is_object(), what_, ": found ", json.type_name(), ", expected an object");
  }

  template <class Field>
  void operator()(const char* name, Field& field) {
    known_.insert(name);
    const auto found = json_.find(name);
    if (found != json_.end()) read(name, *found, field);
  }

  // Throws std::invalid_argument naming the first field that no call asked for.
  void finish() const {
    for (const auto& item : json_.items()) {
      if (known_.contains(item.key())) continue;
      std::string names;
      for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
      fail(what_, ": unknown field `", item.key(), "`, expected one of ", names);
    }
  }

 private:
  template <class Field>
  void read(const char* name, const nlohmann::json& value, Field& field) const {
    try {
      field = value.get<Field>();
    } catch (const nlohmann::json::exception&) {
      fail(what_, ": `", name, "` is ", value.dump(), ", which has the wrong type");
    }
  }

  template <class Field>
  void read(const char* name, const nlohmann::json& value, std::optional<Field>& field) const {
    read(name, value, field.emplace());
  }

  const nlohmann::json& json_;
  std::string what_;
  std::set<std::string> known_;
};

}  // namespace iha::models
