// Command pod is what the drivers' tests run: it does what its arguments say.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch os.Args[1] {
	case "run": // until it is asked to end
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		fmt.Println("ready")
		<-end
	case "stubborn": // until it is killed
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		hang()
	case "spawn": // a child that ignores SIGTERM, in a session of its own
		child := exec.Command(os.Args[0], "stubborn")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	case "delegate": // a child in a group of its own, which it ends when it is asked to end
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		child := exec.Command(os.Args[0], "witness")
		child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		<-end
		time.Sleep(500 * time.Millisecond) // what its child is sent arrives meanwhile
		note("delegate")
		_ = child.Process.Kill()
	case "witness": // notes that it was asked to end
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		note("ready")
		<-end
		note("witness")
		hang()
	case "exit": // CODE TEXT
		fmt.Fprintln(os.Stderr, os.Args[3])
		code, _ := strconv.Atoi(os.Args[2])
		os.Exit(code)
	case "env":
		fmt.Fprintln(os.Stderr, strings.Join(os.Environ(), "\n"))
	case "file": // NAME: its contents
		text, err := os.ReadFile(os.Args[2])
		fmt.Fprintln(os.Stderr, string(text), err)
	case "listen": // PORT
		l, err := net.Listen("tcp", ":"+os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	case "write": // BYTES, and then an end
		n, _ := strconv.Atoi(os.Args[2])
		line := strings.Repeat("x", 99) + "\n"
		for written := 0; written < n; written += len(line) {
			fmt.Print(line)
			fmt.Fprint(os.Stderr, line)
		}
		fmt.Fprintln(os.Stderr, "the end")
		os.Exit(1)
	}
}

// note leaves a file beside this program.
func note(name string) { _ = os.WriteFile(filepath.Join(filepath.Dir(os.Args[0]), name), nil, 0o600) }

func hang() {
	for {
		runtime.Gosched()
		syscall.Pause()
	}
}
