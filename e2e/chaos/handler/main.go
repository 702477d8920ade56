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

func main() { ledger.Main("handler", os.Args[1:], run) }

// run runs the job on standard input.
func run(book *ledger.File) error {
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
