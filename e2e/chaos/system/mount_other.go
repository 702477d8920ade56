//go:build !linux

package system

import "errors"

const canMount = false

func mountSmall(string, int) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
