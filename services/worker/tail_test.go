package worker

import (
	"slices"
	"testing"
)

// A progress bar writes its line over: what it shows at the end is the line.
func TestALineThatWasWrittenOver(t *testing.T) {
	var got []string
	out := &tail{most: 1 << 10, line: func(line []byte) { got = append(got, string(line)) }}
	for _, part := range []string{"10%\r", "50%\r100%\r\nplain\n\r\n", "1 of 2\r2 of 2"} {
		if _, err := out.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	out.flush()
	if want := []string{"100%", "plain", "", "2 of 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
