package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckWritten returns an error for each file that serve would write and could not. It changes
// no file and leaves none behind.
func (c *Config) CheckWritten() error {
	var errs []error
	refuse := func(option string, err error) {
		if err != nil {
			errs = append(errs, &Error{Option: option, Problem: err.Error()})
		}
	}
	if c.Audit != "" && c.Audit != AuditLog {
		refuse("audit.file", checkAppended(c.Audit))
	}
	if c.AddressesFile != "" {
		refuse("addressesFile", checkReplaced(c.AddressesFile))
	}
	return errors.Join(errs...)
}

// checkAppended returns an error if a file can neither be appended to nor made.
func checkAppended(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkMade(filepath.Dir(path))
	case err != nil:
		return err
	case info.Mode()&fs.ModeNamedPipe != 0:
		return nil // opening it would wait for a reader
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkReplaced returns an error if a new file cannot take a path.
func checkReplaced(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	return checkMade(filepath.Dir(path))
}

// checkMade returns an error if no file can be made in a directory.
func checkMade(dir string) error {
	f, err := os.CreateTemp(dir, ".mooring-check-*")
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("no file can be made in %s: %w", dir, failed.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
