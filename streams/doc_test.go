package streams_test

import (
	"os"
	"strings"
	"testing"

	"flightline/streams"
)

// The table of doc.go has each stream and bucket that all endpoints share, and each of a partition.
func TestTheMapHasEachStream(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	const width = len("stream or bucket   ")
	var named []string // the first column
	for line := range strings.Lines(string(text)) {
		if row, found := strings.CutPrefix(line, "//\t"); found && !strings.HasPrefix(row, " ") {
			first := row[:min(width, len(row))]
			named = append(named, strings.Split(strings.TrimSpace(first), ", ")...)
		}
	}
	table := strings.Join(named, "\n") + "\n"
	for _, w := range streams.AllWanted(streams.Config{}, nil) {
		name := w.Config.Name
		if part, found := strings.CutSuffix(name, "_0"); found {
			name = part + "_<p>"
		} else {
			name = strings.TrimPrefix(name, "KV_")
		}
		if !strings.Contains(table, name+"\n") {
			t.Errorf("doc.go has no row for %s", name)
		}
	}
}
