package chunks_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/testenv/backend"
)

func TestChunks(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	long := `"` + strings.Repeat("é", job.MaxChunk) + `"`
	exact := `"` + strings.Repeat("e", job.MaxChunk-2) + `"`
	for _, c := range []string{`{"output":1}`, exact, long} {
		if err := l.Emit(t.Context(), json.RawMessage(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Emit(t.Context(), json.RawMessage(`[`+long+`]`)); !errors.Is(err, chunks.ErrTooLarge) {
		t.Errorf("got %v, want chunks.ErrTooLarge", err)
	}
	list := backend.Chunks(t, s.q, s.e, id)
	if len(list) < 4 {
		t.Fatalf("got %d chunks", len(list))
	}
	if string(list[0].Data) != `{"output":1}` || string(list[1].Data) != exact {
		t.Error("chunks are not verbatim")
	}
	var text strings.Builder
	for _, c := range list[2:] {
		var part string
		if err := json.Unmarshal(c.Data, &part); err != nil || len(c.Data) > job.MaxChunk {
			t.Fatalf("a piece of %d bytes: %v", len(c.Data), err)
		}
		text.WriteString(part)
	}
	if text.String() != strings.Repeat("é", job.MaxChunk) {
		t.Error("the pieces are not the string")
	}
	rest, _, _, err := s.follow(t, s.q, id).Read(t.Context(), list[1].Seq, 100) // as many as fit into one read
	if err != nil || len(rest) == 0 || rest[0].Seq != list[2].Seq {
		t.Errorf("after the second: got %d chunks, %v, want the third first", len(rest), err)
	}
}
