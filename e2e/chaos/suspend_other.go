//go:build !unix

package main

import (
	"errors"
	"os"
)

func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

func terminate(p *os.Process) error { return p.Kill() }
