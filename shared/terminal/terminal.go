// Package terminal is what a command shows to people, and only to them: a table that
// fits, a line that says what is being waited for, and a question before something is
// deleted. Where the streams are no terminal, nothing is shortened, shown or asked.
package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// Is reports whether stream, an io.Reader or io.Writer, is a terminal.
func Is(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Confirm asks on out, and reads yes or no from in; all but y and yes are no. It
// returns true without a question unless both are terminals. The end of ctx is a no.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	if !Is(in) || !Is(out) {
		return true
	}
	if _, err := fmt.Fprintf(out, "%s [y/N] ", question); err != nil {
		return false
	}
	answer := make(chan string, 1)
	go func() { // ends with the answer, or with the process
		line, _ := bufio.NewReader(in).ReadString('\n') // what was read before an error is no answer
		answer <- line
	}()
	select {
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-ctx.Done():
		return false
	}
}
