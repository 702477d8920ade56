package recovery

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// A dev whose files were damaged while it was stopped says what is damaged, keeps
// what can be read, and knows every job that it accepts from then on.
func TestADamagedStoreLosesNothingNew(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev")
	d.Line(program.Ready)
	s.OK("endpoint", "create", "work")
	for range 10 {
		s.OK("runsync", "echo", `{"n":1}`) // records
	}
	for range 10 {
		program.Submit(s, "work")
	}
	overwrite := func(where int) func([]byte) []byte {
		return func(data []byte) []byte {
			at := (len(data) - 200) * where / 2
			for i := range 200 {
				data[at+i] = byte(7*i + 13)
			}
			return data
		}
	}
	waiting := func() int {
		var h struct{ Jobs struct{ InQueue int } }
		s.Eventually("the queue is counted", func() bool { // a lost one is made again
			code, out, _ := s.Run("health", "work", "-o", "json")
			if code == 0 {
				program.Decode(t, out, &h)
			}
			return code == 0
		})
		return h.Jobs.InQueue
	}
	for _, harm := range []struct {
		what, stream, file string
		change             func([]byte) []byte
		most               int // waiting jobs lost at most
	}{
		{"the middle of the records", "KV_records_0", "msgs/1.blk", overwrite(1), 0},
		{"the end of the records", "KV_records_0", "msgs/1.blk", overwrite(2), 0},
		{"the beginning of the keys", "KV_keys", "msgs/1.blk", overwrite(0), 0},
		{"the middle of a queue", "JOBS_work", "msgs/1.blk", overwrite(1), 2},
		{"the torn end of a queue", "JOBS_work", "msgs/1.blk", func(d []byte) []byte { return d[:len(d)-37] }, 1},
		{"the settings of a queue", "JOBS_work", "meta.inf", func(d []byte) []byte { d[len(d)/2] ^= 1; return d }, 0},
	} {
		before := waiting()
		d.Stop(program.StopWithin)
		path := filepath.Join(s.Dir, ".flightline", "jetstream", "jetstream", "$G", "streams", harm.stream, harm.file)
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, harm.change(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		d = s.Start("dev")
		d.Line(program.Ready)
		if said := d.Said(); strings.Count(said, "a file of the store") != 1 || !strings.Contains(said, "stream="+harm.stream) || !strings.Contains(said, "means=") {
			t.Errorf("%s: got %s, want one line that says what is damaged and what it means", harm.what, said)
		}
		if now := waiting(); now < before-harm.most {
			t.Errorf("%s: got %d waiting jobs of %d, want %d lost at most", harm.what, now, before, harm.most)
		}
		id := program.Submit(s, "work")
		s.OK("runsync", "echo", `{"n":1}`)
		if got := s.OK("status", "work", id); !strings.Contains(got, "IN_QUEUE") {
			t.Errorf("%s: got %s, want the new job to wait", harm.what, got)
		}
	}
	if _, out, _ := s.Run("doctor"); !strings.Contains(out, "JOBS_work") || !strings.Contains(out, "lost or damaged") {
		t.Errorf("got %s, want the doctor to show the queue's loss", out)
	}
	code, out, said := s.Run("doctor", "--deep")
	if code != 0 || !strings.Contains(out, "were read") || strings.Contains(out, "cannot be read") {
		t.Errorf("got code %d and %s%s, want that all that dev mended can be read", code, out, said)
	}
}

// A NATS of one's own does not say that a record in its files is damaged: serve
// does, at its start, and so does the doctor. A job that is accepted can be read.
func TestServeSaysThatTheFilesOfItsNATSAreDamaged(t *testing.T) {
	t.Parallel()
	p := program.NewInstallation(t)
	for range 20 {
		program.Submit(p.Env, "work")
	}
	p.NATS.Stop()
	blocks, err := filepath.Glob(filepath.Join(p.NATS.StreamDir("JOBS_work"), "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("got %v, %v, want a block", blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err == nil {
		data[len(data)/2+bytes.Index(data[len(data)/2:], []byte("Flightline-Job"))] ^= 1
		err = os.WriteFile(blocks[0], data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.NATS.Start()
	d := p.Start("serve", "all")
	url := d.Line(program.Ready)
	p.Environ = append(p.Environ, "FLIGHTLINE_URL="+url)
	p.Eventually("serve says what is damaged", func() bool {
		said := d.Said()
		return strings.Contains(said, "files of a stream are damaged") && strings.Contains(said, `stream=JOBS_work found="1 messages cannot be read`) && strings.Contains(said, "jobs that waited there are lost")
	})
	if got := p.OK("status", "work", program.Submit(p.Env, "work")); !strings.Contains(got, "IN_QUEUE") {
		t.Errorf("got %s, want the new job to wait", got)
	}
	if code, out, _ := p.Run("doctor", "--deep"); code != 1 || !strings.Contains(out, "1 messages cannot be read (sequence ") {
		t.Errorf("got code %d and %s, want a fail that names the damage", code, out)
	}
}
