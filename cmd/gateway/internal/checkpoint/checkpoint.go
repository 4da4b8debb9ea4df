// Package checkpoint keeps in a file how far a command has come, so that the same command can go
// on after a kill. It knows nothing of commands.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Save replaces what the file has. A process that is killed leaves the old state or the new one,
// and the machine too, if durable says so.
func Save(path string, state any, durable bool) (err error) {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("bug: a state cannot be encoded as JSON: %w", err)
	}
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Load reads the state, and reports whether there is a file.
func Load(path string, state any) (ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(state); err != nil {
		return false, fmt.Errorf("%s is not a checkpoint of this command: %w", path, err)
	}
	return true, nil
}
