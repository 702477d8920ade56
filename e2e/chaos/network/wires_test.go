package network

import (
	"os"
	"strings"
	"testing"

	"flightline/shared/testenv/port"
)

func TestWiresLeadAroundEachNode(t *testing.T) {
	free, err := port.Free(WireCount(3))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWires([]string{"c0", "c1", "c2"}, []string{"r0", "r1", "r2"}, free)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var got []string
	for _, r := range w.Around(1) {
		got = append(got, r.upstream)
	}
	if text, want := strings.Join(got, " "), "c1 r0 r1 r2 r1"; text != want {
		t.Errorf("around node 1: got %s, want %s", text, want)
	}
	path, err := w.Configure(t.TempDir(), 1, Node{Name: "node1", Route: "127.0.0.1:6222"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{w.links[1][0].Address, w.links[1][2].Address, "no_advertise: true"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
}
