package system

import "errors"

// The signals that the test sends; here they do not exist.
const (
	terminate = iota
	stop
	resume
)

func (p *process) signal(int) error { return errors.ErrUnsupported }

func killProcess(int) error { return errors.ErrUnsupported }
