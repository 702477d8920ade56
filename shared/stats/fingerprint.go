package stats

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// MaxCause is the longest text that Cause returns, in bytes.
const MaxCause = 200

// maxLooked is how much of a text is looked at: half of it at either end, in bytes.
const maxLooked = 64 << 10

// maxSteps bounds how often a cause is looked for in what was found. Each time the text
// gets shorter.
const maxSteps = 8

// Cause is the line of an error text that says what went wrong, at most MaxCause bytes
// of it and without control characters. Of a Python traceback it is the exception, of
// the JSON that RunPod's SDK makes the type and the message, of a panic of Go its line,
// else the first line. A cause is its own cause.
func Cause(text string) string {
	if len(text) > maxLooked {
		text = text[:maxLooked/2] + "\n" + text[len(text)-maxLooked/2:]
	}
	for range maxSteps {
		found := shorten(stepToCause(strings.TrimSpace(text)))
		if found == text {
			break
		}
		text = found
	}
	return text
}

// stepToCause is one look for the cause.
func stepToCause(text string) string {
	if strings.HasPrefix(text, "{") {
		if found := jsonCause(text); found != "" {
			return found
		}
	}
	lines := strings.Split(text, "\n")
	if i := lastWith(lines, "Traceback (most recent call last)"); i >= 0 {
		for _, line := range lines[i+1:] {
			if line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
				return line
			}
		}
		return lines[len(lines)-1]
	}
	if i := lastWith(lines, "panic: "); i >= 0 && strings.HasPrefix(lines[i], "panic: ") {
		return lines[i]
	}
	return lines[0]
}

// lastWith is the last line that has the words, -1 if none has.
func lastWith(lines []string, words string) int {
	for i, line := range slices.Backward(lines) {
		if strings.Contains(line, words) {
			return i
		}
	}
	return -1
}

// jsonCause is the error that a JSON object names, even of a truncated object; "" if it
// names none.
func jsonCause(text string) string {
	kind := strings.TrimSuffix(strings.TrimPrefix(jsonText(text, "error_type"), "<class '"), "'>")
	for _, key := range []string{"error_message", "message", "error", "detail"} {
		message := strings.TrimSpace(jsonText(text, key))
		switch {
		case message != "" && kind != "":
			line, _, _ := strings.Cut(message, "\n")
			return kind + ": " + line
		case message != "":
			return message
		}
	}
	return kind
}

// jsonText is the text that stands behind the first key of the name, as far as it is
// there.
func jsonText(text, key string) string {
	_, rest, found := strings.Cut(text, strconv.Quote(key))
	if !found {
		return ""
	}
	rest, found = strings.CutPrefix(strings.TrimSpace(rest), ":")
	if !found {
		return ""
	}
	rest, found = strings.CutPrefix(strings.TrimSpace(rest), `"`)
	if !found {
		return ""
	}
	end := 0
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	return unescape(rest[:min(end, len(rest))])
}

var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "", `\"`, `"`, `\\`, `\`, `\/`, `/`)

// unescape reads the inside of a text of JSON. Where it is cut off or invalid, the
// common escapes are replaced, which is good enough for a line to be read and compared.
func unescape(text string) string {
	var read string
	if json.Unmarshal([]byte(`"`+text+`"`), &read) == nil {
		return read
	}
	return escapes.Replace(text)
}

// shorten makes one line of a text, of MaxCause bytes at most.
func shorten(text string) string {
	if len(text) > 4*MaxCause { // what is left out may be long
		text = text[:4*MaxCause]
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) <= MaxCause {
		return text
	}
	return strings.TrimSpace(strings.ToValidUTF8(text[:MaxCause], ""))
}

// The parts of a cause that differ from job to job, in the order in which they are
// replaced.
var variable = []struct {
	part *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s'"]+`), "URL"},
	{regexp.MustCompile(`"[^"]*"`), `""`},
	{regexp.MustCompile("`[^`]*`"), "``"},
	{regexp.MustCompile(`(^|[^\pL\pN])'[^']*'`), "$1''"},
	{regexp.MustCompile(`(^|[\s(\[=,:<])(?:[A-Za-z]:)?(?:[\w.~-]*[/\\][\w.+~-]+)+[/\\]?`), "${1}PATH"},
	{regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`), "#"},
	{regexp.MustCompile(`\b0[xX][0-9a-fA-F]+`), "#"},
	{regexp.MustCompile(`\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|\b[0-9a-fA-F]{7,}[0-9][0-9a-fA-F]*\b`), "#"},
	{regexp.MustCompile(`\b\w*[0-9]+[A-Za-z_]+[0-9]+\w*\b`), "#"},
	{regexp.MustCompile(`[0-9]+`), "#"},
	{regexp.MustCompile(`[-+]?#(?:[.,:;x-]? ?[-+]?#)+`), "#"},
}

// Template is a cause without what differs from job to job: numbers, ids, paths,
// addresses and quoted values.
func Template(cause string) string {
	for _, v := range variable {
		cause = v.part.ReplaceAllString(cause, v.by)
	}
	return cause
}

// Fingerprint names the cause of an error text: 16 hexadecimal digits, the same for
// texts whose causes differ in numbers, ids, paths and quoted values only. It is ""
// for an empty text.
func Fingerprint(text string) string {
	cause := Cause(text)
	if cause == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(Template(cause)))
	return hex.EncodeToString(sum[:8])
}

// ValidFingerprint reports whether a text may be what Fingerprint returned.
func ValidFingerprint(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 16 && strings.ToLower(text) == text
}
