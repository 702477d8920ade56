package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAReaderFollowsWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, ok, err := r.Next(); ok || err != nil {
		t.Fatalf("an empty ledger: got %v, %v", ok, err)
	}
	f, err := Append(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Kind: Begin, N: 7, Job: "sync-1", Worker: "w1", Process: 12, Parent: 11},
		{Kind: End, N: 7, Job: "sync-1", Worker: "", Process: 12, Parent: 11},
	}
	for _, e := range want {
		before := time.Now()
		if err := f.Write(e); err != nil {
			t.Fatal(err)
		}
		got, ok, err := r.Next()
		if !ok || err != nil || got.At.Before(before) {
			t.Fatalf("got %v, %v, %v", got, ok, err)
		}
		got.At = time.Time{}
		if got != e {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

func TestAReaderWaitsForTheEndOfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []string{`begin 5 1 "a`, `" "w" 2 1`} {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := r.Next(); ok || err != nil {
			t.Fatalf("half a line: got %v, %v", ok, err)
		}
	}
	if _, err := f.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if e, ok, err := r.Next(); !ok || err != nil || e.Job != "a" || e.By() != "w/2" {
		t.Errorf("got %+v, %v, %v", e, ok, err)
	}
}
