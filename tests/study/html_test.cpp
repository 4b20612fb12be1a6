#include "shardloom/study/html.h"

#include "tests/study/well_formed.h"

namespace shardloom::study {
namespace {

TEST(Markup, TheCheckerSeesWhatAParserWould) {
  for (const char* bad : {"<a><b></a></b>", "<a>", "</a>", "<a b=c></a>", "<a b=\"1\" b=\"2\"/>",
                          "<a>&</a>", "<a>1 < 2</a>", "<a>&nbsp;</a>", "<a/><b/>", "<a/>text",
                          "<a>\x01</a>", "<a b=\"<\"/>", "<a b=\"1/>"}) {
    EXPECT_NE(MarkupChecker(bad).check(), "") << bad;
  }
  expect_well_formed("<a b=\"1 &amp; 2\"><c/>x &lt; y</a>\n");
}

TEST(Html, EscapesWhatXmlCannotHold) {
  EXPECT_EQ(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(escape("bell \a, bad \xff\xfe!"), "bell \xEF\xBF\xBD, bad \xEF\xBF\xBD\xEF\xBF\xBD!");
  EXPECT_EQ(escape("Übung %"), "Übung %");
}

TEST(Html, APageOfEverything) {
  const std::string nasty = "</td><script src=\"x\">&\x01\xff";
  const std::string text =
      page(nasty, section(nasty, paragraph(nasty) + list({nasty, "b"}) + facts({{nasty, nasty}}) +
                                     table({.header = {"", nasty}, .rows = {{nasty, nasty}}})));
  expect_well_formed(text);
  EXPECT_EQ(text.find("<script"), std::string::npos);
}

TEST(Html, ShortRowsAreFilled) {
  const std::string text =
      "<x>" + table({.header = {"", "a", "b"}, .rows = {{"r", "1"}, {"s"}}}) + "</x>";
  MarkupChecker checker(text);
  EXPECT_EQ(checker.check(), "");
  EXPECT_EQ(checker.num_elements("td"), 4);
  EXPECT_EQ(checker.num_elements("th"), 5);
}

TEST(Html, TextTablesAlign) {
  EXPECT_EQ(
      table_text({.header = {"", "Größe", "b"}, .rows = {{"row", "1", "22"}, {"s", "333333"}}}),
      "      Größe   b\n"
      "row       1  22\n"
      "s    333333\n");
  EXPECT_EQ(facts_text({{"a", "1"}, {"long", "2"}}), "a     1\nlong  2\n");
}

}  // namespace
}  // namespace shardloom::study
