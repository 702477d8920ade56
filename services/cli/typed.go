package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// mayBeZero annotates a duration of which 0 is a value like any other.
const mayBeZero = "may be zero"

// checkTyped refuses zeros that were typed where a request would leave them out,
// so that they would stand for the default.
func checkTyped(f *pflag.FlagSet) error {
	var err error
	f.Visit(func(typed *pflag.Flag) {
		text := typed.Value.String()
		switch typed.Value.Type() {
		case "duration":
			least := time.Millisecond // the API counts in these
			if typed.Annotations[mayBeZero] != nil {
				least = 0
			}
			if d, _ := time.ParseDuration(text); d < least {
				err = &UsageError{fmt.Errorf("--%s %s: must be %s or more", typed.Name, text, least)}
			}
		case "int":
			if typed.Name == "limit" && text == "0" {
				err = &UsageError{errors.New("--limit 0: must be 1 or more")}
			}
		}
	})
	return err
}
