package dev

import (
	"fmt"
	"os"
	"strings"

	"flightline/services/cli"
	"flightline/shared/limit"
)

// Values of --limits that are no path.
const (
	limitsDefault = "default"
	limitsOff     = "off"
)

// limitsOf reads the setting: the contract's limits, none (nil), or those in
// a file. JSON itself will do too, so that a variable can hold it.
func limitsOf(setting string) (limit.Table, error) {
	switch setting {
	case limitsDefault:
		return limit.Defaults(), nil
	case limitsOff:
		return nil, nil
	}
	text, name := []byte(setting), "--limits"
	if !strings.HasPrefix(strings.TrimSpace(setting), "{") {
		var err error
		if text, err = os.ReadFile(setting); err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--limits must be default, off or a file: %w", err)}
		}
		name = "--limits " + setting
	}
	table, err := limit.Parse(text)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	return table, nil
}
