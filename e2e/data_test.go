package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// A link in the data folder would have dev read, overwrite or cut off a file that
// is somewhere else, with its keys in it.
func TestDevRefusesLinksInItsDataFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	s := program.New(t)
	start := func() {
		d := s.Start("dev", "--no-demo")
		d.Line(program.Ready)
		d.Stop(program.StopWithin)
	}
	start() // makes the store
	data := filepath.Join(s.Dir, ".flightline")
	blocks, err := filepath.Glob(filepath.Join(data, "jetstream", "jetstream", "*", "streams", "KV_keys", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("got %q, %v, want a block of the store", blocks, err)
	}
	const text = "not dev's own\n"
	for name, path := range map[string]string{
		"dev.json": filepath.Join(data, "dev.json"), "the next dev.json": filepath.Join(data, "dev.json.new"),
		"a block": blocks[0], "the store": filepath.Join(data, "jetstream"), "the lock": filepath.Join(data, "jetstream", "lock"),
	} {
		target := filepath.Join(t.TempDir(), "target")
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(path, aside); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		d := s.Start("dev", "--no-demo")
		served := false
		for line := range d.Lines { // until its end
			if strings.HasPrefix(line, program.Ready) {
				served = true
				d.Terminate()
			}
		}
		_ = d.Cmd.Wait() // what it says is looked at
		if said := d.Said(); served || !strings.Contains(said, filepath.Base(path)+" is a link") {
			t.Errorf("%s: served %v, got %.300s, want the link refused", name, served, said)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != text {
			t.Errorf("%s: its target has become %.100q, %v", name, got, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aside, path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	moved := filepath.Join(t.TempDir(), "elsewhere") // the folder itself may be the operator's link
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(moved, data); err != nil {
		t.Fatal(err)
	}
	start()
}
