// Command handler is what the workers of the chaos tests run for each job. It
// writes a line when it begins and a line when it has finished, to a file that
// Flightline does not know.
//
//	flightline worker ENDPOINT -- handler LEDGER
//	env $(flightline worker env ENDPOINT) handler -poll LEDGER
//
// The first form runs one job. The second is a worker that speaks RunPod's
// protocol to a gateway, with one job at a time.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"flightline/e2e/chaos/ledger"
)

// document is a job as a worker hands it over.
type document struct {
	ID    string       `json:"id"`
	Input ledger.Input `json:"input"`
}

func main() {
	run, args := one, os.Args[1:]
	if len(args) == 2 && args[0] == "-poll" {
		run, args = poll, args[1:]
	}
	if len(args) != 1 {
		fail(fmt.Errorf("got %d arguments, want [-poll] LEDGER", len(args)))
	}
	book, err := ledger.Append(args[0])
	if err != nil {
		fail(err)
	}
	if err := run(book); err != nil {
		fail(err)
	}
}

func fail(err error) {
	_, _ = fmt.Fprintln(os.Stderr, "handler:", err)
	os.Exit(1)
}

// one runs the job on standard input.
func one(book *ledger.File) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var j document
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	output, err := work(book, j)
	if err != nil {
		return err
	}
	_, err = fmt.Println(output)
	return err
}

// work does a job and returns its output, which names the run.
func work(book *ledger.File, j document) (string, error) {
	e := ledger.Entry{
		Kind: ledger.Begin, N: j.Input.N, Job: j.ID, Worker: worker(), Process: os.Getpid(), Parent: os.Getppid(),
	}
	if err := book.Write(e); err != nil {
		return "", err
	}
	end := j.Input.Until(time.Now())
	for time.Now().Before(end) && !opened(j.Input.Gate) {
		<-time.After(min(time.Until(end), 20*time.Millisecond))
	}
	e.Kind = ledger.End
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
	if gate == "" {
		return false
	}
	_, err := os.Stat(gate)
	return err == nil
}
