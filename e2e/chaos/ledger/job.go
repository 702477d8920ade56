package ledger

import (
	"fmt"
	"os"
	"time"
)

// Job is a job as a worker hands it over.
type Job struct {
	ID    string `json:"id"`
	Input Input  `json:"input"`
}

// Main is the main function of a program that does jobs. args, without its name, are
// the path of the ledger. It ends the process if run does not succeed.
func Main(name string, args []string, run func(*File) error) {
	err := fmt.Errorf("got %d arguments, want LEDGER", len(args))
	if len(args) == 1 {
		var book *File
		if book, err = Append(args[0]); err == nil {
			err = run(book)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// gateInterval is the pause between two looks at a gate.
const gateInterval = 20 * time.Millisecond

// Work does a job, writes its beginning and its end to book, and returns its output,
// which names the run.
func (j Job) Work(book *File) (string, error) {
	e := Entry{Kind: Begin, N: j.Input.N, Job: j.ID, Worker: worker(), Process: os.Getpid(), Parent: os.Getppid()}
	if err := book.Write(e); err != nil {
		return "", err
	}
	end := j.Input.Until(time.Now())
	if j.Input.Gate == "" {
		<-time.After(time.Until(end))
	}
	for time.Now().Before(end) && !opened(j.Input.Gate) {
		<-time.After(min(time.Until(end), gateInterval))
	}
	e.Kind = End
	if err := book.Write(e); err != nil {
		return "", err
	}
	return fmt.Sprintf(`{"by":%q}`, e.By()), nil
}

// worker names the worker: as the test does, or as the driver that started it.
func worker() string {
	if name := os.Getenv("CHAOS_WORKER"); name != "" {
		return name
	}
	return os.Getenv("RUNPOD_POD_ID")
}

// opened reports whether the gate is a file that exists.
func opened(gate string) bool {
	_, err := os.Stat(gate)
	return err == nil
}
