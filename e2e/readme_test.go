package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"flightline/e2e/checkout"
	"flightline/e2e/require"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// played are the documents whose lines are run, in this order and in one shell:
// what README starts is there for the tutorials. Two variables stand in for what
// a reader chooses: ENGINE for Ollama, and HOOK for a free port.
var played = []string{
	"README.md", "docs/tutorials/first-job.md", "docs/tutorials/your-own-worker.md", "docs/tutorials/move-from-runpod.md",
	"docs/tutorials/serve-a-model.md", "docs/tutorials/monitor-and-alert.md", "docs/tutorials/upgrade.md", "docs/how-to/use-the-go-packages.md",
}

// block is a fenced block of a document. The word after its language says how
// it is run: "daemon" stays up, "soon" is repeated until it prints what it
// should, "elsewhere" is not run here, and a name with a dot is a file to write.
// A block of text is what the one before it prints.
type block struct {
	lang, mode, text string
	file             string
	line             int
}

func (b block) isFile() bool { return strings.Contains(b.mode, ".") }

func (b block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

var fence = regexp.MustCompile("(?ms)^```(\\w*) ?([\\w./-]*)\n(.*?)^```$")

func blocksIn(t *testing.T, file string) []block {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	var blocks []block
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string { return text[at[2*i]:at[2*i+1]] }
		blocks = append(blocks, block{part(1), part(2), part(3), file, 1 + strings.Count(text[:at[0]], "\n")})
	}
	if len(blocks) < 5 {
		t.Fatalf("%s: got %d blocks, want those of the document", file, len(blocks))
	}
	return blocks
}

// A stranger copies the lines of the README and of the tutorials into a shell,
// one after the other, in a fresh copy of the repository, and sees what they say.
func TestTheDocumentsLinesDoWhatTheySay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds everything")
	}
	for _, tool := range []string{"bash", "curl", "sed", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Skip(t, "readme", tool+" is not there")
		}
	}
	dir := filepath.Join(steadyFolder(t), "flightline") // the lines make folders beside it
	copyRepository(t, dir)
	// To compile all in another folder takes a minute, and two shells would do it at once.
	build := exec.CommandContext(t.Context(), "go", "run", "./services/flightline", "--version") // go keeps what it links
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Run("README and tutorials", func(t *testing.T) {
		t.Parallel()
		playREADME(t, dir)
	})
	// This one has a system of its own: one dev with a file of GPUs, and two more autoscalers.
	t.Run("two GPUs", func(t *testing.T) {
		t.Parallel()
		newSession(t, dir).play(t, blocksIn(t, "docs/tutorials/two-gpus.md"))
	})
}

func playREADME(t *testing.T, dir string) {
	t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(standInEngine))
	t.Cleanup(engine.Close)
	hook := httptest.NewServer(nil) // for its port
	hook.Close()
	sh := newSession(t, dir, "ENGINE="+engine.URL, "HOOK="+hook.URL+"/")
	for _, file := range played {
		blocks := blocksIn(t, file)
		inPython := slices.IndexFunc(blocks, func(b block) bool { return b.lang == "python" && b.isFile() })
		if inPython < 0 {
			inPython = len(blocks)
		}
		ok := t.Run(file, func(t *testing.T) { sh.play(t, blocks[:inPython]) })
		ok = ok && t.Run(file+" from its Python on", func(t *testing.T) {
			if inPython < len(blocks) {
				sh.installPython(t)
			}
			sh.play(t, blocks[inPython:])
		})
		if !ok {
			return
		}
	}
}

// play runs the blocks in turn and compares what they print.
func (s *session) play(t *testing.T, blocks []block) {
	t.Helper()
	s.t = t
	for i, b := range blocks {
		want := ""
		if i+1 < len(blocks) && blocks[i+1].lang == "text" {
			want = blocks[i+1].text
		}
		switch {
		case b.mode == "elsewhere", b.lang != "sh" && b.mode == "":
		case b.isFile():
			s.write(b.mode, b.text)
		case b.mode == "daemon":
			s.daemon(b, want)
		case b.lang == "sh" && b.mode == "soon":
			testenv.EventuallyNone(t, func() string { return s.wrong(b, want) })
		case b.lang == "sh" && b.mode == "":
			if wrong := s.wrong(b, want); wrong != "" {
				t.Fatal(wrong)
			}
		default:
			t.Errorf("%v: got a block of %q %q, want one of the kinds above", b, b.lang, b.mode)
		}
	}
}

// wrong runs a block, and says what it printed if that is not what is wanted.
func (s *session) wrong(b block, want string) string {
	s.t.Helper()
	got := s.run(b)
	if masked(got) == masked(want) {
		return ""
	}
	return fmt.Sprintf("%v:\n%s\ngot:\n%s\nwant:\n%s", b, b.text, got, want)
}

// installPython makes the published packages of e2e/clients the folder venv,
// as pip would.
func (s *session) installPython(t *testing.T) {
	t.Helper()
	python := filepath.Join(require.Clients(t), "python")
	if _, err := os.Stat(filepath.Join(python, "installed-from")); err != nil {
		require.Skip(t, "python", "run e2e/clients/install")
	}
	if err := os.Symlink(python, filepath.Join(s.dir, "venv")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

// standInEngine answers as Ollama and vLLM do, whatever it is asked.
func standInEngine(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet { // it is ready
		return
	}
	var asked struct {
		Stream bool `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"Hello!"}}]}`)
		return
	}
	_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello!\"}}]}\n\ndata: [DONE]\n\n")
}

// masks are what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`once=[A-Z2-7]{26}`), "once=TOKEN"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z`), "TIME"},
	{regexp.MustCompile(`(\d+(\.\d+)?(ms|µs|m|s))+\b`), "DURATION"},
	{regexp.MustCompile(`\d+ (streams|messages)`), "N $1"},
	{regexp.MustCompile(`(?m)^go: .*\n`), ""}, // as it loads modules
	{regexp.MustCompile(`Time":\d+`), `Time":N`},
	{regexp.MustCompile(`(?m)^id: \d+$`), "id: CURSOR"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
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
	t    *testing.T
	dir  string
	logs string // a folder for what runs in the background
	in   io.Writer
	out  *bufio.Reader
	n    int // blocks run so far
}

func newSession(t *testing.T, dir string, environ ...string) *session {
	t.Helper()
	logs := t.TempDir()
	s := &program.Env{T: t, Dir: dir, Environ: append(environ, "FLIGHTLINE_LISTEN=127.0.0.1:0", "FLIGHTLINE_NATS_LISTEN=127.0.0.1:0")}
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
	return &session{t: t, dir: dir, logs: logs, in: in, out: bufio.NewReader(out)}
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
			s.t.Fatalf("%v: the shell ended: %v\n%s", b, err, printed.String())
		}
		before, code, ended := strings.Cut(line, mark) // curl ends no line
		printed.WriteString(before)
		if !ended {
			continue
		}
		if code != "0\n" {
			s.t.Fatalf("%v:\n%sgot code %swant 0:\n%s", b, b.text, code, printed.String())
		}
		return printed.String()
	}
}

// daemon runs a block in the background and waits until it printed want.
func (s *session) daemon(b block, want string) {
	s.t.Helper()
	log := filepath.Join(s.logs, fmt.Sprintf("daemon-%d.log", s.n))
	s.run(block{text: fmt.Sprintf("{ %s ; } > %q 2> %q.err < /dev/null &", strings.TrimSpace(b.text), log, log), file: b.file, line: b.line})
	late := time.NewTimer(5 * time.Minute) // it may have to be built, on a machine with a load of 16
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
			s.t.Fatalf("%v: %s\ngot:\n%s%s\nwant:\n%s", b, b.text, printed, errs, want)
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
	name := filepath.Base(path)
	return filepath.Ext(name) == ".go" || name == "go.mod" || name == "go.sum" || path == "shared/openapi/openapi.json" ||
		strings.HasPrefix(path, "services/console/")
}

// steadyFolder is a new folder at the same path for each run in this checkout, so that the go
// command has in its cache what it compiled there before. It is another folder while a run uses
// that one, and for an hour after a run was killed.
func steadyFolder(t *testing.T) string {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("flightline-copy-%.8x", sha256.Sum256([]byte(checkout))))
	if at, err := os.Stat(dir); err == nil && time.Since(at.ModTime()) > time.Hour {
		_ = os.RemoveAll(dir) // it may be another user's
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// copyRepository makes what a clone would have of the working tree.
func copyRepository(t *testing.T, to string) {
	t.Helper()
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
}
