package pod

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// document has a field of each kind that documents have.
type document struct {
	Inner struct {
		Text string `json:"text"`
	} `json:"inner"`
	embedded
	List  []map[string]int  `json:"list"`
	Env   map[string]string `json:"env"`
	Half  *float64          `json:"half"`
	Truth *bool             `json:"truth"`
	At    time.Time         `json:"at"`
}

type embedded struct {
	Name string `json:"name"`
}

func misread(text string) *FieldError {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return Misread([]byte(text), decoder.Decode(new(document)))
}

func TestMisreadNamesTheValueByItsPath(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":1}`:                     "name must be a string",
		`{"env":{"A":"b","C":1}}`:        "env.C must be a string",
		`{"env":{"A":{}}}`:               "env.A must be a string",
		`{"env":{"text":"text","b":[]}}`: "env.b must be a string",
		`{"env":[]}`:                     "env must be an object",
		`{"list":[{"a":1},{"b":"c"}]}`:   "list[1].b must be a whole number",
		`{"list":[{"a":1.5}]}`:           "list[0].a must be a whole number",
		`{"list":[{"a":1e30}]}`:          "list[0].a must be a whole number in at most 18 digits",
		`{"list":[{"a":1e400}]}`:         "list[0].a must be a whole number in at most 18 digits",
		`{"list":[{"a":1e3}]}`:           "list[0].a must be a whole number in at most 18 digits",
		`{"list":[[]]}`:                  "list[0] must be an object",
		`{"list":{}}`:                    "list must be an array",
		`{"inner":{"text":1.5}}`:         "inner.text must be a string",
		`{"inner":"x"}`:                  "inner must be an object",
		`{"half":"x"}`:                   "half must be a number",
		`{"truth":"yes"}`:                "truth must be true or false",
		`{"at":"soon"}`:                  "an instant must be like 2026-01-31T12:00:00Z",
		`{"at":5}`:                       "an instant must be like 2026-01-31T12:00:00Z",
		`{"at":{}}`:                      "an instant must be like 2026-01-31T12:00:00Z",
		`{"at":"2026-13-01T00:00:00Z"}`:  "an instant must be like 2026-01-31T12:00:00Z",
		`{"at":"a\u0000b"}`:              "an instant must be like 2026-01-31T12:00:00Z", // no word of it
		`{"nam":1}`:                      "nam is not a known field",
		`[]`:                             " must be an object",
		`"x"`:                            " must be an object",
		`{"name":`:                       " is not valid JSON",
		``:                               " is not valid JSON",
		`{"env":{"a\u0000b":1}}`:         "env must be a string", // what people cannot read is left out
		`{"env":{"` + strings.Repeat("x", 300) + `":1}}`:     "env must be a string",
		`{"list":[{"a":-1` + strings.Repeat("0", 20) + `}]}`: "list[0].a must be a whole number in at most 18 digits",
	} {
		if got := misread(text); got == nil || got.Error() != want {
			t.Errorf("%.60s: got %v, want %q", text, got, want)
		}
	}
	if got := misread(`{"name":"x","list":[{}],"env":{"A":"b"},"at":"2026-01-31T12:00:00Z"}`); got != nil {
		t.Errorf("got %v, want nil", got)
	}
}

// Each mistake gets an error text, and it can be printed.
func FuzzMisread(f *testing.F) {
	f.Add(`{"env":{"A":1}}`)
	f.Add(`{"list":[{"a":[[1]]}],"name":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		err := json.Unmarshal([]byte(text), new(document))
		got := Misread([]byte(text), err)
		if (got == nil) != (err == nil) {
			t.Fatalf("got %v for %v", got, err)
		}
		if got != nil && bytes.ContainsAny([]byte(got.Field), "\x00\n") {
			t.Errorf("got %q", got.Field)
		}
	})
}
