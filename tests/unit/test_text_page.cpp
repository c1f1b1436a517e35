// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/text_page.h"

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("A table's cells are right-aligned, and its name takes the rest of the line", "[output]") {
  TextTable table({"Time", "Calls"}, "Kernel");
  CHECK(table.text(0).empty());
  const std::string name(200, 'k');
  table.row({"1.5ms", "7"}, "gemm");
  table.row({"2ns", "123456"}, name);
  const std::string text = table.text(12);
  CHECK(text.find("\n   Time   Calls  Kernel\n"
                  "  1.5ms       7  gemm\n"
                  "    2ns  123456  kkk") == 0);
  CHECK(text.find("  ... and 2 more\n") != std::string::npos);
  CHECK(text.find("123456  ") + 8 + kPageColumns - 17 == text.find("\n  ... and"));
  CHECK(table.text(TextTable::kMaxRows).find("more") == std::string::npos);
}

TEST_CASE("A paragraph is broken at spaces, and its other lines are indented further", "[output]") {
  TextPage page;
  std::string words;
  for (int i = 0; i < 30; ++i) words += "seven77 ";
  page.paragraph("  ", words);
  const std::string line = "seven77 seven77 seven77 seven77 seven77 seven77 seven77 ";
  CHECK(page.text().find("  " + line + line.substr(0, line.size() - 1) + "\n    seven77") == 0);
  TextPage unbroken;
  unbroken.paragraph("  ", std::string(119, 'x'));
  CHECK(unbroken.text() == "  " + std::string(118, 'x') + "\n    x\n");
  TextPage empty;
  empty.paragraph("  ", "");
  CHECK(empty.text().empty());
}

TEST_CASE("A line is cut to the width, unless it is there to be copied", "[output]") {
  TextPage page;
  const std::string text(150, 'x');
  page.cut_line(text);
  CHECK(page.text().size() == kPageColumns + 1);
  TextPage whole;
  whole.whole_line(text);
  CHECK(whole.text() == text + "\n");
  TextPage named;
  named.named_line("kernel: ", text);
  CHECK(named.text().size() == kPageColumns + 1);
  TextPage narrow(80);
  narrow.named_line("  " + std::string(60, 'a') + ": ", "some_kernel");
  CHECK(narrow.text() == "  " + std::string(60, 'a') + ": \n    some_kernel\n");
}

TEST_CASE("A line that is too wide goes on below, indented, for a few lines", "[output]") {
  TextPage page(80);
  page.line(
      "  incomplete: 7 calls missed by the iteration search, so iteration numbers may be off: raise "
      "INJECT_RING");
  CHECK(page.text() ==
        "  incomplete: 7 calls missed by the iteration search, so iteration numbers may\n    be off: raise "
        "INJECT_RING\n");
  TextPage endless(80);
  endless.line("  " + std::string(100'000, 'x'));
  CHECK(endless.text().size() < 4 * 81);
}

TEST_CASE("On a narrow page a table's last cells give way to the name", "[output]") {
  TextTable table({"Time(%)", "Time", "Calls", "Avg", "Min", "Max"}, "Kernel");
  const std::string name(100, 'k');
  table.row({"100.0%", "999.999ms", "100000", "999.999us", "999.999us", "999.999us"}, name);
  const std::string head = "\n  Time(%)       Time   Calls        Avg  Kernel\n";
  const std::string text = table.text(1, 80);
  CHECK(text.starts_with(head + "   100.0%  999.999ms  100000  999.999us  kkk"));
  CHECK(text.size() == head.size() + 81);
  CHECK(table.text(1).find("Max") != std::string::npos);
}
