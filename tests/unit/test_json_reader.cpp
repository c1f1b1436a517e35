// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/json_reader.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("JSON: values in their order") {
  JsonReader json(
      R"( { "a" : 1, "skipped": {"a": [1, {"b": "]}"}], "c": null}, "text" : "x\"y\\", "list":[ 1 ,-2,3.9e2 ],
                        "yes": true, "no":false, "empty": {}, "none": [] } )");
  std::string keys;
  std::int64_t a = 0;
  std::string text;
  std::vector<std::int64_t> list;
  bool yes = false;
  bool no = true;
  json.object([&](std::string_view key) {
    keys += key;
    keys += ' ';
    if (key == "a") a = json.integer();
    if (key == "text") text = json.string();
    if (key == "list") json.array([&] { list.push_back(json.integer()); });
    if (key == "yes") yes = json.boolean();
    if (key == "no") no = json.boolean();
    if (key == "empty") json.object([](std::string_view) { FAIL(); });
    if (key == "none") json.array([] { FAIL(); });
  });
  CHECK_FALSE(json.failed());
  CHECK(json.peek() == '\0');
  CHECK(keys == "a skipped text list yes no empty none ");
  CHECK(a == 1);
  CHECK(text == R"(x\"y\\)");
  CHECK(list == std::vector<std::int64_t>{1, -2, 3});
  CHECK(yes);
  CHECK_FALSE(no);
}

TEST_CASE("JSON: numbers that do not fit") {
  JsonReader json("[99999999999999999999, -99999999999999999999, 9223372036854775807, 1.5]");
  std::vector<std::int64_t> numbers;
  json.array([&] { numbers.push_back(json.integer()); });
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  CHECK(numbers == std::vector<std::int64_t>{kMax, -kMax, kMax, 1});
}

TEST_CASE("JSON: what is none fails, and nothing is taken after it") {
  for (const char* text : {"", "{", "[", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\" 1}", "{a:1}", "[1 2]",
                           "[1,", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":}", "[]]", "]", "nul"}) {
    INFO(text);
    JsonReader json(text);
    int values = 0;
    json.object([&](std::string_view) { ++values; });
    CHECK(json.failed());
    CHECK(values <= 1);
    CHECK(json.integer() == 0);
    CHECK(json.string().empty());
    CHECK_FALSE(json.boolean());
    json.array([] { FAIL(); });
    CHECK(json.peek() == '\0');
  }
}

TEST_CASE("JSON: depth costs nothing") {
  std::string text(1'000'000, '[');
  JsonReader open(text);
  open.skip();
  CHECK(open.failed());
  text += std::string(1'000'000, ']') + " 7";
  JsonReader closed(text);
  closed.skip();
  CHECK_FALSE(closed.failed());
  CHECK(closed.integer() == 7);
}

TEST_CASE("JSON: any text ends") {
  std::mt19937 random(7);
  const std::string letters = "{}[]\",:\\ 0123456789-.eEtruefalsn";
  for (int run = 0; run < 20'000; ++run) {
    std::string text;
    for (auto i = random() % 40; i > 0; --i) text += letters[random() % letters.size()];
    JsonReader json(text);
    int values = 0;
    const auto any = [&](auto&& self, int depth) -> void {
      ++values;
      if (depth > 3) return;
      switch (json.peek()) {
        case '{':
          return json.object([&](std::string_view) { self(self, depth + 1); });
        case '[':
          return json.array([&] { self(self, depth + 1); });
        case '"':
          json.string();
          return;
        default:
          json.integer();
      }
    };
    any(any, 0);
    REQUIRE(values <= static_cast<int>(text.size()) + 1);
  }
}
