// Package logstest reads for tests what package logs keeps.
package logstest

import (
	"errors"
	"io"
	"strings"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/logs"
)

// All are the lines that there are now.
func All(t testing.TB, b *bus.Client, w logs.Watching) (all []logs.Entry) {
	t.Helper()
	w.Once = true
	v, err := logs.NewWatch(t.Context(), b, w)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for {
		some, err := v.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
}

// Texts are the texts of lines, with | between them.
func Texts(entries []logs.Entry) string {
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Text)
	}
	return strings.Join(all, "|")
}
