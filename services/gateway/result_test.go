package gateway

import (
	"strings"
	"testing"
)

func TestReadResult(t *testing.T) {
	traceback := `"{\"error_type\": \"<class 'ValueError'>\", \"error_message\": \"no\"}"`
	tests := map[string]struct {
		body   string
		kind   kind
		output string
		err    string
		stop   bool
	}{
		"output":                      {`{"output": {"a": 1}}`, completed, `{"a": 1}`, "", false},
		"output of any kind":          {`{"output": "text"}`, completed, `"text"`, "", false},
		"output null":                 {`{"output": null}`, completed, `null`, "", false},
		"nothing":                     {`{}`, completed, "", "", false},
		"nothing but a restart":       {`{"stopPod": true}`, completed, "", "", true},
		"a restart that is none":      {`{"output": 1, "stopPod": false}`, completed, "1", "", false},
		"an error's text":             {`{"error": "no"}`, failed, "", "no", false},
		"an exception":                {`{"error": ` + traceback + `}`, failed, "", `{"error_type": "<class 'ValueError'>", "error_message": "no"}`, false},
		"an error beside an output":   {`{"output": {"rest": 1}, "error": "no"}`, failed, `{"rest": 1}`, "no", false},
		"an error beside nothing":     {`{"output": {}, "error": "no"}`, failed, "", "no", false},
		"an error that is an object":  {`{"error": {"code": 4, "why": [1, 2]}}`, failed, "", `{"code":4,"why":[1,2]}`, false},
		"an error that is true":       {`{"error": true}`, failed, "", "true", false},
		"an error that is a number":   {`{"error": 17}`, failed, "", "17", false},
		"an error with NaN":           {`{"error": [NaN]}`, failed, "", `[null]`, false},
		"an error that is NaN":        {`{"output": {"loss": NaN}, "error": NaN}`, failed, `{"loss": null}`, "NaN", false},
		"an error that has no end":    {`{"error": -Infinity}`, failed, "", "-Infinity", false},
		"no error beside NaN":         {`{"output": NaN, "error": null}`, completed, "null", "", false},
		"no error":                    {`{"output": 1, "error": null}`, completed, "1", "", false},
		"an empty error":              {`{"output": 1, "error": ""}`, completed, "1", "", false},
		"an error and a restart":      {`{"error": "no", "stopPod": true}`, failed, "", "no", true},
		"progress":                    {`{"status": "IN_PROGRESS", "output": "50 %"}`, progress, `"50 %"`, "", false},
		"progress without a value":    {`{"status": "IN_PROGRESS"}`, progress, "", "", false},
		"another status":              {`{"status": "COMPLETED", "output": 1}`, completed, "1", "", false},
		"the end of a generator":      {`{"output": []}`, completed, `[]`, "", false},
		"NaN":                         {`{"output": [NaN, Infinity, -Infinity, -1]}`, completed, `[null, null, null, -1]`, "", false},
		"NaN within a string":         {`{"output": ["NaN", "\"NaN", NaN]}`, completed, `["NaN", "\"NaN", null]`, "", false},
		"unknown keys":                {`{"output": 1, "metrics": {}}`, completed, "1", "", false},
		"an array":                    {`[1]`, failed, "", unreadable + ": it is JSON of another kind", false},
		"a form":                      {`output=1`, failed, "", unreadable + ": 8 bytes, invalid character 'o' looking for beginning of value", false},
		"an empty body":               {``, failed, "", unreadable + ": 0 bytes, unexpected end of JSON input", false},
		"null":                        {`null`, failed, "", unreadable + ": it is JSON of another kind", false},
		"cut off":                     {`{"output": "NaN`, failed, "", unreadable + ": 15 bytes, unexpected end of JSON input", false},
		"cut off within NaN":          {`{"output": Na`, failed, "", unreadable + ": 13 bytes, invalid character 'N' looking for beginning of value", false},
		"a lone half of a character":  {`{"output": "\ud800"}`, completed, `"\ud800"`, "", false},
		"an escape at the very end":   {`{"output": "\`, failed, "", unreadable + ": 13 bytes, invalid character ' ' in string escape code", false},
		"a character out of the BMP":  {`{"output": "😀"}`, completed, `"😀"`, "", false},
		"the last of two of one name": {`{"output": 1, "output": 2}`, completed, `2`, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := readResult([]byte(tc.body), "")
			if got.kind != tc.kind || string(got.output) != tc.output || got.err != tc.err || got.stopPod != tc.stop {
				t.Errorf("got %d, output %s, error %q, stop %v, want %d, %s, %q, %v",
					got.kind, got.output, got.err, got.stopPod, tc.kind, tc.output, tc.err, tc.stop)
			}
		})
	}
}

func TestFiniteLeavesTheRest(t *testing.T) {
	for _, text := range []string{``, `"`, `"\`, `N`, `{"a":"-Infinity"}`, strings.Repeat(`"x",`, 3)} {
		if got := string(finite([]byte(text))); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func FuzzReadResult(f *testing.F) {
	for _, seed := range []string{`{"output":NaN}`, `{"error":"x"}`, `"`, `{"output":"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r := readResult(body, ""); r.kind == failed && r.err == "" {
			t.Errorf("%q: got a failure without a text", body)
		}
	})
}
