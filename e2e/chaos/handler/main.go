// Command handler is what the workers of the chaos tests run for each job. It
// writes a line when it begins and a line when it has finished, to a file that
// Flightline does not know. It is started for each job: what it imports costs
// every start.
//
//	flightline worker ENDPOINT -- handler LEDGER
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"flightline/e2e/chaos/ledger"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "handler:", err)
		os.Exit(1)
	}
}

// run runs the job on standard input.
func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want LEDGER", len(args))
	}
	book, err := ledger.Append(args[0])
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var j ledger.Job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	output, err := j.Work(book)
	if err != nil {
		return err
	}
	_, err = fmt.Println(output)
	return err
}
