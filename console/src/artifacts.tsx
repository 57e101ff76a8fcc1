import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { api, ask, fetchBytes, inPath, type SessionName, sessionPath } from './api.ts';
import { formatBytes } from './format.ts';
import { Empty, Json, Loaded, Time } from './ui.tsx';

const route = getRouteApi('/sessions/$appName/$userId/$sessionId');
/** Longer text is for a program of its own. */
const MAX_TEXT = 200_000;
/** Pictures that run nothing: an `<img>` never does, not even of SVG. */
const PICTURE = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const TEXT = /^text\/|[/+](json|xml|yaml|javascript)$/;

/** The artifacts of a session, and the chosen one. */
export function Artifacts({ name }: { name: SessionName }) {
  const { artifact, version } = route.useSearch();
  const navigate = route.useNavigate();
  const names = useQuery({
    queryKey: ['artifacts', name],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts', { params: { path: inPath(name) } }),
      ),
  });
  const choose = (chosen: { artifact: string; version?: number | undefined }) =>
    void navigate({ search: (before) => ({ ...before, version: undefined, ...chosen }), replace: true });
  return (
    <Loaded query={names}>
      {(list) =>
        list.length === 0 ? (
          <Empty>No artifact.</Empty>
        ) : (
          <div className="split">
            <ul className="choices">
              {list.map((each) => (
                <li key={each}>
                  <button type="button" aria-pressed={each === artifact} onClick={() => choose({ artifact: each })}>
                    {each}
                  </button>
                </li>
              ))}
            </ul>
            {artifact === undefined ? (
              <Empty>Choose one.</Empty>
            ) : (
              <Artifact name={name} artifact={artifact} version={version} choose={choose} />
            )}
          </div>
        )
      }
    </Loaded>
  );
}

interface ArtifactProps {
  name: SessionName;
  artifact: string;
  version: number | undefined;
  choose: (chosen: { artifact: string; version?: number | undefined }) => void;
}

function Artifact({ name, artifact, version, choose }: ArtifactProps) {
  const versions = useQuery({
    queryKey: ['artifact-versions', name, artifact],
    queryFn: () =>
      ask(
        api.GET('/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions/metadata', {
          params: { path: { ...inPath(name), artifact_name: artifact } },
        }),
      ),
  });
  return (
    <Loaded query={versions}>
      {(list) => {
        const chosen = list.find((each) => each.version === version) ?? list.at(-1);
        if (!chosen) return <Empty>It has no version.</Empty>;
        return (
          <section aria-label={artifact}>
            <label>
              Version{' '}
              <select
                value={chosen.version}
                onChange={(event) => choose({ artifact, version: Number(event.target.value) })}
              >
                {list.map((each) => (
                  <option key={each.version}>{each.version}</option>
                ))}
              </select>
            </label>{' '}
            <span className="hint">
              {chosen.mimeType} · <Time at={chosen.createTime} />
            </span>
            <Content name={name} artifact={artifact} version={chosen.version} type={chosen.mimeType ?? ''} />
          </section>
        );
      }}
    </Loaded>
  );
}

/** A version of an artifact. Without a type it is that of the answer. */
export function Content(props: { name: SessionName; artifact: string; version: number; type?: string }) {
  const { name, artifact, version, type } = props;
  const path = `${sessionPath(name)}/artifacts/${encodeURIComponent(artifact)}?version=${version}&alt=media`;
  const bytes = useQuery({ queryKey: ['bytes', path], queryFn: () => fetchBytes(path), staleTime: Infinity });
  return <Loaded query={bytes}>{(blob) => <Shown blob={blob} type={type ?? blob.type} file={artifact} />}</Loaded>;
}

/** Shows a file as what it says it is, and never as a page: HTML is text. */
export function Shown({ blob, type, file }: { blob: Blob; type: string; file: string }) {
  const [url, setUrl] = useState('');
  const [text, setText] = useState<string>();
  const [media = ''] = type.toLowerCase().split(';');
  const isText = TEXT.test(media.trim());
  useEffect(() => {
    // The type is ours, not that of the answer: a page of this origin can never come of it.
    const isShown = PICTURE.test(media) || media === 'application/pdf';
    const made = URL.createObjectURL(new Blob([blob], { type: isShown ? media : 'application/octet-stream' }));
    setUrl(made);
    setText(undefined);
    if (isText) void blob.slice(0, MAX_TEXT).text().then(setText);
    return () => URL.revokeObjectURL(made);
  }, [blob, media, isText]);
  return (
    <>
      {text !== undefined && <Json value={text} />}
      {url !== '' && PICTURE.test(media) && <img className="picture" src={url} alt={file} />}
      {url !== '' && media === 'application/pdf' && <iframe className="document" src={url} title={file} />}
      <p>
        <a href={url} download={file.split('/').at(-1)}>
          Download
        </a>{' '}
        <span className="hint">
          {formatBytes(blob.size)}
          {isText && blob.size > MAX_TEXT ? ', the beginning of which is shown' : ''}
        </span>
      </p>
    </>
  );
}
