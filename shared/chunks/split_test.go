package chunks

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"flightline/shared/job"
)

func TestSplit(t *testing.T) {
	fill := func(n int) string { return strings.Repeat("x", n) }
	const around = len(`{"output":""}`)
	tests := map[string]struct {
		chunk  string
		pieces int // 0: too large
	}{
		"a string of 1 MB":                   {`"` + fill(job.MaxChunk-2) + `"`, 1},
		"a string of 1 MB and a byte":        {`"` + fill(job.MaxChunk-1) + `"`, 2},
		"an output of 1 MB":                  {`{"output":"` + fill(job.MaxChunk-around) + `"}`, 1},
		"an output of 1 MB and a byte":       {`{"output":"` + fill(job.MaxChunk-around+1) + `"}`, 2},
		"an output of 10 MB":                 {`{"output":"` + fill(10*job.MaxChunk) + `"}`, 11},
		"escapes":                            {`{"output":"` + strings.Repeat(`\n\"\\\u00e9\ud83d\ude00`, job.MaxChunk/20) + `"}`, 2},
		"two-byte characters":                {`{"output":"` + strings.Repeat("é", job.MaxChunk) + `"}`, 3},
		"with metrics":                       {`{"output":"` + fill(job.MaxChunk) + `","metrics":{"n":1}}`, 2},
		"an object of 1 MB":                  {`{"output":[` + fill1(job.MaxChunk-around) + `]}`, 1},
		"an object of 1 MB and a byte":       {`{"output":[` + fill1(job.MaxChunk-around+1) + `]}`, 0},
		"an array":                           {`[` + fill1(job.MaxChunk) + `]`, 0},
		"a number":                           {fill1(job.MaxChunk + 1), 0},
		"an object without output":           {`{"text":"` + fill(job.MaxChunk) + `"}`, 0},
		"much beside the output":             {`{"output":"x","metrics":"` + fill(job.MaxChunk) + `"}`, 0},
		"nothing but what is beside it":      {`{"output":"","metrics":"` + fill(job.MaxChunk) + `"}`, 0},
		"so much beside it that little fits": {`{"output":"` + fill(100) + `","metrics":"` + fill(job.MaxChunk-around-60) + `"}`, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pieces, err := split([]byte(test.chunk), job.MaxChunk)
			if test.pieces == 0 {
				if !errors.Is(err, ErrTooLarge) {
					t.Errorf("got %d pieces, %v, want ErrTooLarge", len(pieces), err)
				}
				return
			}
			if err != nil || len(pieces) != test.pieces {
				t.Fatalf("got %d pieces, %v, want %d", len(pieces), err, test.pieces)
			}
			joined(t, test.chunk, job.MaxChunk, pieces)
		})
	}
}

// fill1 is a number of n digits.
func fill1(n int) string { return strings.Repeat("1", n) }

// joined fails unless the pieces, of limit bytes at most, together say what the
// chunk does.
func joined(t *testing.T, chunk string, limit int, pieces [][]byte) {
	t.Helper()
	if len(pieces) == 1 {
		if string(pieces[0]) != chunk {
			t.Error("a chunk that fits is not verbatim")
		}
		return
	}
	var got strings.Builder
	for i, piece := range pieces {
		if len(piece) > limit || !json.Valid(piece) {
			t.Fatalf("piece %d: %d bytes, valid %v", i, len(piece), json.Valid(piece))
		}
		got.WriteString(textOf(t, piece))
		var element struct {
			Metrics json.RawMessage `json:"metrics"`
		}
		_ = json.Unmarshal(piece, &element)
		if want := i == 0 && strings.Contains(chunk, "metrics"); (element.Metrics != nil) != want {
			t.Errorf("piece %d: metrics %.20s, want them %v", i, element.Metrics, want)
		}
	}
	if want := textOf(t, []byte(chunk)); got.String() != want {
		t.Errorf("the pieces have %d bytes of text, want %d, or another text", got.Len(), len(want))
	}
}

func textOf(t *testing.T, chunk []byte) string {
	t.Helper()
	var text string
	if json.Unmarshal(chunk, &text) == nil {
		return text
	}
	var element struct {
		Output string `json:"output"`
	}
	if err := json.Unmarshal(chunk, &element); err != nil {
		t.Fatal(err)
	}
	return element.Output
}

// Whatever the text, no character is torn: torn ones would come out as U+FFFD.
func FuzzSplit(f *testing.F) {
	const limit = 120
	for _, text := range []string{"x", `\ud83d\ude00`, "é漢😀", `\\\"`, `\ud83d`, `\u00e9\n`, "\u2028"} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, element bool) {
		inside := strings.Repeat(text, limit/max(1, len(text))+2)
		chunk := `"` + inside + `"`
		if element {
			chunk = `{"output":` + chunk + `,"metrics":1}`
		}
		if !json.Valid([]byte(chunk)) || strings.ContainsRune(text, 0xFFFD) || len(text) == 0 {
			t.Skip()
		}
		pieces, err := split([]byte(chunk), limit)
		if err != nil {
			t.Fatal(err)
		}
		joined(t, chunk, limit, pieces)
	})
}
