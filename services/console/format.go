package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"flightline/shared/api"
	"flightline/shared/client"
	"flightline/shared/job"
)

// functions are what templates may call.
func functions() template.FuncMap {
	return template.FuncMap{
		"csrf": func(v *visit) template.HTML {
			return template.HTML(`<input type="hidden" name="csrf" value="` + csrfOf(v.apiKey) + `">`) //nolint:gosec // of base64
		},
		"when": when, "ms": millis, "num": number, "status": statusMark, "spark": spark, "chart": chart, "bars": bars,
		"short": short, "cut": cut, "path": func(of any) string { return url.PathEscape(fmt.Sprint(of)) }, "plural": plural, "sum": sum, "last": lastOf,
		"lower": strings.ToLower, "add": func(a, b int) int { return a + b }, "list": func(all ...any) []any { return all },
		"navigation": navigation, "tabs": tabs, "mark": mark, "gpus": gpuNames, "startup": startupText, "free": freeOf,
		"share": func(share float64) string { return strconv.Itoa(int(share*100+0.5)) + " %" },
		"used":  func(g client.MachineGPU) int64 { return 100 - freeOf(g) },
		"kind":  func(of string) string { return strings.TrimPrefix(of, "job.") },
		"count": func(n any) string { return number(toInt(n)) },
		"size":  func(n any) string { return api.Size(toInt(n)) },
	}
}

// timeForm is an instant for people without JavaScript, with which it is relative.
const timeForm = "2006-01-02 15:04:05"

// when is an instant: a time.Time, a text of RFC 3339, or "" or the zero time for none.
func when(at any) template.HTML {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case string:
		t, _ = time.Parse(time.RFC3339Nano, at) // the API's own, or ""
	}
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, t.Format("2006-01-02T15:04:05.000Z"), t.Format(timeForm+".000"), t.Format(timeForm))) //nolint:gosec // digits
}

// millis is a duration, a time.Duration or a number of ms, with two significant digits.
func millis(of any) string {
	var d time.Duration
	switch of := of.(type) {
	case time.Duration:
		d = of
	case int64:
		d = time.Duration(of) * time.Millisecond
	case int:
		d = time.Duration(of) * time.Millisecond
	case *int64:
		if of == nil {
			return "–"
		}
		d = time.Duration(*of) * time.Millisecond
	}
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

func toInt(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(min(n, math.MaxInt64))
	}
	return 0
}

// number groups the digits by thousands.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:] // a narrow space that does not break
	}
	return sign + text
}

// statusWords are the statuses in words, by which they are coloured too.
var statusWords = map[job.Status]string{
	job.InQueue: "queued", job.InProgress: "running", job.Completed: "completed", job.Failed: "failed", job.Cancelled: "cancelled", job.TimedOut: "timed out",
}

func statusMark(status any) template.HTML {
	text := job.Status(fmt.Sprint(status))
	word, known := statusWords[text]
	if !known {
		word = strings.ToLower(string(text))
	}
	return marked(word)
}

// mark is a state in a word, with the colour of its class.
func mark(state any) template.HTML {
	return marked(strings.ReplaceAll(fmt.Sprint(state), "_", " "))
}

func marked(word string) template.HTML {
	return template.HTML(`<span class="status s-` + template.HTMLEscapeString(strings.ReplaceAll(word, " ", "-")) + `">` + template.HTMLEscapeString(word) + `</span>`) //nolint:gosec // escaped
}

// short is the end of an id, which differs from those of its neighbours in time; all of a short one.
func short(id any) string {
	text := fmt.Sprint(id)
	const kept = 13
	if len(text) <= kept+1 {
		return text
	}
	return "…" + text[len(text)-kept+1:]
}

// cut is at most n bytes of a text, with an ellipsis if that is not all.
func cut(n int, of any) string {
	text := fmt.Sprint(of)
	if b, ok := of.([]byte); ok {
		text = string(b)
	}
	if len(text) <= n {
		return text
	}
	return job.Cut(text, n) + "…"
}

// plural is a number with its noun, "1 job" or "2 jobs".
func plural(n any, noun string) string {
	count := toInt(n)
	if count == 1 {
		return "1 " + noun
	}
	return number(count) + " " + noun + "s"
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

// lastOf is the last value that is not 0, 0 for none.
func lastOf(values []int64) int64 {
	for _, v := range slices.Backward(values) {
		if v != 0 {
			return v
		}
	}
	return 0
}
