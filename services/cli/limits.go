package cli

import (
	"fmt"
	"strings"

	"flightline/shared/client"
)

// limitsFlag reads limits of operations, one with each use of its flag.
type limitsFlag map[string]client.Limit

// Set implements pflag.Value.
func (f *limitsFlag) Set(text string) error {
	operation, numbers, _ := strings.Cut(text, "=")
	var l client.Limit
	if n, err := fmt.Sscanf(numbers+"\n", "%d,%d\n", &l.Requests, &l.Concurrent); n != 2 || err != nil || l.Requests < 0 || l.Concurrent < 0 {
		return fmt.Errorf("must be like run=1000,200")
	}
	if *f == nil {
		*f = limitsFlag{}
	}
	(*f)[operation] = l
	return nil
}

// String implements pflag.Value: nothing is limited unless it is said.
func (f *limitsFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *limitsFlag) Type() string { return "OPERATION=REQUESTS,CONCURRENT" }
