package config

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/connstring"
)

// userTexts holds the texts that define the user of the deployment, and the files that have them.
type userTexts struct {
	uri, username, password         string
	hasUsername, hasPassword        bool
	uriFile, nameFile, passwordFile string
}

// note records the source of an option's text. An existing file must not be empty.
func (u *userTexts) note(option string, s setting) error {
	switch option {
	case uriOption:
		u.uriFile = s.file
	case mongoUsername:
		u.nameFile, u.hasUsername = s.file, s.source != fromDefault
	case mongoPassword:
		u.passwordFile, u.hasPassword = s.file, s.source != fromDefault
	default:
		return nil
	}
	if s.file != "" && s.text == "" {
		return errEmpty
	}
	return nil
}

var errEmpty = errors.New("the file is empty")

func (u *userTexts) parse(options map[string][]string) (connstring.Config, error) {
	s := connstring.Source{URI: u.uri, Options: options}
	if u.hasUsername {
		s.Username = &u.username
	}
	if u.hasPassword {
		s.Password = &u.password
	}
	cfg, err := s.Parse()
	if err != nil {
		return cfg, err
	}
	if cfg.AuthMechanism == "MONGODB-OIDC" { // it has no password; its client checks the rest
		return cfg, nil
	}
	if err := cfg.CheckAuth(connstring.InCode{}); err != nil {
		return cfg, fmt.Errorf("connection string: %w", err)
	}
	return cfg, nil
}

// User returns the user of the deployment, as it was when the configuration was loaded.
func (c *Config) User() auth.User {
	return auth.User{Name: c.MongoDB.Username, Password: c.MongoDB.Password}
}

// UserFiles returns the files that the user of the deployment was read from, if there is one.
func (c *Config) UserFiles() (paths []string) {
	if !c.MongoDB.HasCredential {
		return nil
	}
	for _, f := range c.mongoUser.files() {
		if f.path != "" {
			paths = append(paths, f.path)
		}
	}
	return paths
}

// UserTexts returns the texts of these files, in the same order.
func (c *Config) UserTexts() (texts []string) {
	for _, f := range c.mongoUser.files() {
		if f.path != "" {
			texts = append(texts, *f.text)
		}
	}
	return texts
}

type userFile struct {
	path string
	text *string
}

func (u *userTexts) files() []userFile {
	return []userFile{{u.uriFile, &u.uri}, {u.nameFile, &u.username}, {u.passwordFile, &u.password}}
}

// ReadUser returns the user that new texts of UserFiles define, without the space around them. It
// fails if a text is invalid, or if the texts change more than the user.
func (c *Config) ReadUser(texts []string) (auth.User, error) {
	now := c.mongoUser
	for _, f := range now.files() {
		if f.path == "" {
			continue
		}
		if texts[0] == "" {
			return auth.User{}, errEmpty
		}
		if err := c.CheckSecretFile(f.path); err != nil {
			return auth.User{}, err
		}
		*f.text, texts = texts[0], texts[1:]
	}
	cfg, err := now.parse(c.mongoOptions)
	if err != nil {
		return auth.User{}, err
	}
	if !cfg.SameButUser(c.MongoDB) {
		return auth.User{}, errors.New("the connection string has changed in more than the " +
			"user: that needs a restart")
	}
	return auth.User{Name: cfg.Username, Password: cfg.Password}, nil
}
