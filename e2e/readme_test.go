package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/e2e/checkout"
	"flightline/e2e/need"
	"flightline/e2e/site"
)

// block is a fenced block of the README. What its language is followed by
// tells how it is run: "daemon" stays up, "elsewhere" is what runs this test.
type block struct {
	lang, mode, text string
	line             int
}

var (
	fence = regexp.MustCompile("(?ms)^```(\\w+) ?(\\w*)\n(.*?)^```$")
	link  = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

func blocksOf(readme string) []block {
	var blocks []block
	for _, at := range fence.FindAllStringSubmatchIndex(readme, -1) {
		part := func(i int) string { return readme[at[2*i]:at[2*i+1]] }
		blocks = append(blocks, block{part(1), part(2), part(3), 1 + strings.Count(readme[:at[0]], "\n")})
	}
	return blocks
}

// A stranger copies the README's lines into a shell, one after the other, in
// a fresh copy of the repository, and sees what it says.
func TestTheREADMEsLinesDoWhatItSays(t *testing.T) {
	if testing.Short() {
		t.Skip("builds everything anew")
	}
	for _, tool := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skip(t, "readme", tool+" is not there")
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	sh := newSession(t, copyOfRepository(t))
	blocks := blocksOf(string(readme))
	if len(blocks) < 10 {
		t.Fatalf("got %d blocks, want the README's", len(blocks))
	}
	for i, b := range blocks {
		want := ""
		if i+1 < len(blocks) && blocks[i+1].lang == "text" {
			want = blocks[i+1].text
		}
		switch {
		case b.lang == "go":
			sh.write("hello/main.go", b.text)
		case b.lang == "text", b.mode == "elsewhere":
		case b.mode == "daemon":
			sh.daemon(b, want)
		case b.lang == "sh":
			if got := sh.run(b); masked(got) != masked(want) {
				t.Fatalf("README.md:%d:\n%s\ngot:\n%s\nwant:\n%s", b.line, b.text, got, want)
			}
		default:
			t.Errorf("README.md:%d: got a block of %q, want sh, text or go", b.line, b.lang)
		}
	}
}

func TestTheREADMEsLinksLeadSomewhere(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range link.FindAllStringSubmatch(string(readme), -1) {
		if _, err := os.Stat(filepath.Join("..", found[1])); err != nil {
			t.Errorf("link to %s: %v", found[1], err)
		}
	}
}

// masks are what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`(\d+(\.\d+)?(ms|µs|m|s))+\b`), "DURATION"},
	{regexp.MustCompile(`Time":\d+`), `Time":N`},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.by)
	}
	return strings.TrimSpace(text)
}

// session is a shell that runs block after block, in a process group of its
// own with all it starts.
type session struct {
	t   *testing.T
	dir string
	in  io.Writer
	out *bufio.Reader
	n   int // blocks run so far
}

func newSession(t *testing.T, dir string) *session {
	t.Helper()
	s := &site.Site{T: t, Dir: dir, Env: []string{"FLIGHTLINE_LISTEN=127.0.0.1:0", "FLIGHTLINE_NATS_LISTEN=127.0.0.1:0"}}
	cmd := s.Command("bash")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	// What runs in the background writes to files of its own. This pipe is
	// handed down to all of the group and ends with the last of them.
	living, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{held}
	err = cmd.Start()
	_ = held.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		_, _ = io.Copy(io.Discard, living)
		_ = living.Close()
		_ = cmd.Wait()
	})
	return &session{t: t, dir: dir, in: in, out: bufio.NewReader(out)}
}

// run runs the lines of a block and returns what they printed.
func (s *session) run(b block) string {
	s.t.Helper()
	s.n++
	mark := fmt.Sprintf("--- block %d ended with ", s.n)
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", b.text, mark); err != nil {
		s.t.Fatal(err)
	}
	var printed strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("README.md:%d: the shell ended: %v\n%s", b.line, err, printed.String())
		}
		before, code, ended := strings.Cut(line, mark) // curl ends no line
		printed.WriteString(before)
		if !ended {
			continue
		}
		if code != "0\n" {
			s.t.Fatalf("README.md:%d:\n%sgot code %swant 0:\n%s", b.line, b.text, code, printed.String())
		}
		return printed.String()
	}
}

// daemon runs a block in the background and waits until it printed want.
func (s *session) daemon(b block, want string) {
	s.t.Helper()
	log := filepath.Join(s.t.TempDir(), "out")
	s.run(block{text: fmt.Sprintf("{ %s ; } > %q 2> %q.err < /dev/null &", strings.TrimSpace(b.text), log, log), line: b.line})
	late := time.NewTimer(3 * time.Minute) // it may have to be built
	defer late.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		printed, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) { // the shell is about to make it
			s.t.Fatal(err)
		}
		if err == nil && masked(string(printed)) == masked(want) {
			return
		}
		select {
		case <-again.C:
		case <-late.C:
			errs, _ := os.ReadFile(log + ".err")
			s.t.Fatalf("README.md:%d: %s\ngot:\n%s%s\nwant:\n%s", b.line, b.text, printed, errs, want)
		}
	}
}

func (s *session) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// built reports whether a file is compiled or embedded.
func built(path string) bool {
	return filepath.Ext(path) == ".go" || path == "go.mod" || path == "go.sum" || path == "shared/openapi/openapi.json"
}

// copyOfRepository is what a clone would have of the working tree.
func copyOfRepository(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range checkout.Files(t, "..") {
		if !built(name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
