import { signal } from '@preact/signals';
import { render, type ComponentType } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { principal, session, signOut, start } from './api';
import { Calls } from './calls';
import { Deployment } from './deployment';
import { Held } from './held';
import { Palette } from './palette';
import { Failure } from './parts';
import { QueryView } from './query';
import { Reference } from './reference';
import { linkTo, route } from './router';
import { SignIn } from './signin';
import './style.css';
import { Tail } from './tail';
import { Why } from './why';

interface View {
  title: string;
  /** about says in a line what the view is for, if its title does not. */
  about?: string;
  show: ComponentType;
}

const views: Record<string, View> = {
  deployment: { title: 'Deployment', show: Deployment },
  held: {
    title: 'Held', show: Held,
    about: 'Cursors that clients hold open, and the connections that are pinned for them.',
  },
  calls: {
    title: 'Slow and refused', show: Calls,
    about: 'Calls of this replica since it started, one row for all calls of a kind.',
  },
  query: { title: 'Query', show: QueryView },
  tail: { title: 'Live tail', show: Tail },
  why: {
    title: 'Why', show: Why,
    about: 'Which rule allows or refuses a request, and what the policy changes in it. Nothing is run.',
  },
  api: { title: 'API', show: Reference },
};
const first = 'deployment';

const unreached = signal<unknown>(undefined);

function App() {
  switch (session.value) {
    case 'unknown':
      return unreached.value ? (
        <main id="main" class="sign-in">
          <Failure error={unreached.value} />
        </main>
      ) : null;
    case 'needed':
      return <SignIn />;
    default:
      return <Shell />;
  }
}

function Shell() {
  const name = route.value.view in views ? route.value.view : first;
  const view = views[name]!;
  const main = useRef<HTMLElement>(null);
  const shown = useRef(name);
  useEffect(() => {
    document.title = `${view.title} · Mooring`;
    if (shown.current !== name) {
      main.current!.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    shown.current = name;
  }, [name]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          main.current!.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top">
        <p class="brand">Mooring</p>
        <nav aria-label="Views">
          <ul>
            {Object.entries(views).map(([key, v]) => (
              <li key={key}>
                <a href={linkTo(key)} aria-current={key === name ? 'page' : undefined}>
                  {v.title}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <Palette views={Object.entries(views).map(([key, v]) => [key, v.title])} />
        {session.value === 'signed-in' && (
          <p class="user">
            <span class="muted">{principal.value}</span>
            <button type="button" class="quiet" onClick={signOut}>
              Sign out
            </button>
          </p>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <h1>{view.title}</h1>
        {view.about && <p class="muted">{view.about}</p>}
        <view.show key={route.value.visit} />
      </main>
      <footer>
        <a href="licenses.txt">Licences</a>
      </footer>
    </>
  );
}

render(<App />, document.getElementById('app')!);
start().catch((e: unknown) => (unreached.value = e));
