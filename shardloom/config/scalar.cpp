#include "shardloom/config/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

enum class Written { kBool, kYesNo, kNumber, kOctalLike, kOtherNumber, kNotFinite, kText };

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t i) {
  while (i < text.size() && is_digit(text[i])) ++i;
  return i;
}

std::string_view without_sign(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text;
}

// Digits, at most one dot, at most one exponent.
bool is_decimal(std::string_view text) {
  const std::string_view body = without_sign(text);
  size_t i = skip_digits(body, 0);
  size_t digits = i;
  if (i < body.size() && body[i] == '.') {
    const size_t after = skip_digits(body, i + 1);
    digits += after - i - 1;
    i = after;
  }
  if (digits == 0) return false;
  if (i < body.size() && (body[i] == 'e' || body[i] == 'E')) {
    ++i;
    if (i < body.size() && (body[i] == '+' || body[i] == '-')) ++i;
    const size_t end = skip_digits(body, i);
    if (end == i) return false;
    i = end;
  }
  return i == body.size();
}

bool has_leading_zero(std::string_view text) {
  const std::string_view body = without_sign(text);
  return body.size() > 1 && body[0] == '0' && is_digit(body[1]);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// 0x1F, 0o17, 0b1, 1_000: numbers in YAML 1.1 or 1.2, refused here.
bool is_other_number(std::string_view text) {
  const std::string_view body = without_sign(text);
  if (body.size() > 2 && body[0] == '0' && is_one_of(body.substr(1, 1), {"x", "X", "o", "b"})) {
    return std::all_of(body.begin() + 2, body.end(),
                       [](unsigned char c) { return std::isxdigit(c); });
  }
  if (body.empty() || !is_digit(body[0]) || body.find('_') == std::string_view::npos) return false;
  std::string plain(body);
  plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  return is_decimal(plain);
}

Written written_as(std::string_view text) {
  if (is_one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE"})) return Written::kBool;
  if (is_one_of(lower(text), {"yes", "no", "on", "off", "y", "n"})) return Written::kYesNo;
  if (is_one_of(lower(without_sign(text)), {".nan", ".inf", "nan", "inf", "infinity"})) {
    return Written::kNotFinite;
  }
  if (is_decimal(text)) return has_leading_zero(text) ? Written::kOctalLike : Written::kNumber;
  if (is_other_number(text)) return Written::kOtherNumber;
  return Written::kText;
}

[[noreturn]] void fail(const std::string& expected,
                       const YamlNode& node,
                       const std::string& remedy = "") {
  throw BadValue(fmt::format("expected {}, got {}{}", expected, node.describe(), remedy));
}

// The text of an unquoted scalar, or an error that names the fix.
const std::string& plain_text(const YamlNode& node, const std::string& expected) {
  if (node.kind != YamlNode::Kind::kScalar) fail(expected, node);
  if (node.quoted) fail(expected, node, "; remove the quotes");
  return node.text;
}

double to_double(const YamlNode& node, const std::string& expected) {
  const std::string& text = plain_text(node, expected);
  switch (written_as(text)) {
    case Written::kNumber:
      break;
    case Written::kNotFinite:
      throw BadValue(fmt::format("{} is not finite", text));
    case Written::kOctalLike:
      fail(expected, node, "; a leading zero could mean octal, so write it without");
    case Written::kOtherNumber:
      fail(expected, node, "; write it in plain decimal digits");
    default:
      fail(expected, node);
  }
  const std::string_view body =
      text[0] == '+' ? std::string_view(text).substr(1) : std::string_view(text);
  double value = 0.0;
  const auto result = std::from_chars(body.data(), body.data() + body.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) fail(expected, node, "; out of range");
  return value;
}

}  // namespace

bool read_bool(const YamlNode& node) {
  const std::string expected = "true or false";
  const std::string& text = plain_text(node, expected);
  switch (written_as(text)) {
    case Written::kBool:
      return lower(text) == "true";
    case Written::kYesNo:
      fail(expected, node,
           is_one_of(lower(text), {"yes", "on", "y"}) ? "; write true" : "; write false");
    default:
      fail(expected, node);
  }
}

int64_t read_int(const YamlNode& node) {
  const std::string expected = "a whole number";
  const double approximate = to_double(node, expected);
  std::string_view text = node.text;
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ptr == text.data() + text.size()) {
    if (result.ec != std::errc()) fail(expected, node, "; out of range");
    return value;
  }
  // 2e3 or 2000.0; beyond 2^53 a double no longer holds every whole number.
  if (approximate != std::trunc(approximate)) fail(expected, node);
  if (std::abs(approximate) > 9007199254740992.0) fail(expected, node, "; out of range");
  return static_cast<int64_t>(approximate);
}

double read_float(const YamlNode& node) { return to_double(node, "a number"); }

std::string read_text(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) {
    const bool brace = node.kind == YamlNode::Kind::kMap;
    fail("text", node, brace ? "; text that starts with { must be quoted" : "");
  }
  if (node.quoted || written_as(node.text) == Written::kText) return node.text;
  fail("text", node, fmt::format("; if this text is meant, quote it: \"{}\"", node.text));
}

std::string write_bool(bool value) { return value ? "true" : "false"; }

std::string write_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string write_text(const std::string& value) {
  constexpr std::string_view kSafe = "_-./+";
  const bool safe = !value.empty() && value[0] != '-' &&
                    std::all_of(value.begin(), value.end(), [&](unsigned char c) {
                      return std::isalnum(c) || kSafe.find(static_cast<char>(c)) != kSafe.npos;
                    });
  const bool is_null = is_one_of(lower(value), {"null", "~", ""});
  if (safe && !is_null && written_as(value) == Written::kText) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace shardloom::config
