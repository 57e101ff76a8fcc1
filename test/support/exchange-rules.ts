/** Exchanges as they were recorded on ADK's own server, and where this service differs on purpose. */

/** A value of JSON. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
/** A recorded request with its answer. */
export interface Exchange {
  label: string;
  method: string;
  path: string;
  request?: Json;
  status: number;
  response: Json;
}
/** What is compared. */
export type Answer = Pick<Exchange, 'status' | 'response'>;

/** Where this service differs on purpose: what becomes of a recorded answer, and why. */
interface Rule {
  reason: string;
  change: (answer: Answer, exchange: Exchange) => Answer;
}

/** True for an object, not for a list. */
export const isObject = (value: Json | undefined): value is { [name: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
/** A copy in which `change` was made to every object, the inner ones first. */
function everywhere(value: Json, change: (object: { [name: string]: Json }) => Json): Json {
  if (Array.isArray(value)) return value.map((each) => everywhere(each, change));
  if (!isObject(value)) return value;
  return change(Object.fromEntries(Object.entries(value).map(([name, of]) => [name, everywhere(of, change)])));
}
const inside =
  (change: (object: { [name: string]: Json }) => Json): Rule['change'] =>
  ({ status, response }) => ({
    status,
    response: everywhere(response, change),
  });
/** A copy without some members. */
export const without = (object: { [name: string]: Json }, ...names: string[]) =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
const detailOf = ({ response }: Answer) =>
  isObject(response) && typeof response['detail'] === 'string' ? response['detail'] : '';
type Recorded = { [name: string]: Json };
const evalIdOf = (result: Json) => (result as { evalId: string }).evalId;
/** Results of cases, by the case: those of a run come in the order of our set, which was not recorded. */
export const inOrder = (value: Json): Json =>
  Array.isArray(value) && value.every((each) => isObject(each) && 'evalId' in each)
    ? value.toSorted((a, b) => (evalIdOf(a) < evalIdOf(b) ? -1 : 1))
    : isObject(value)
      ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, inOrder(each)]))
      : value;
/** True for a case that was not made from a session. */
export const isMadeByHand = (response: Json) => /"conversationScenario"|"toolUses"/.test(JSON.stringify(response));
const isSetPath = (path: string) => /\/(?:eval-sets|eval_sets)\/[^/]+$/.test(path);

/** In the order in which they are applied. */
export const RULES: Rule[] = [
  {
    reason: 'a sent case without turns is refused: there is nothing to evaluate',
    change: (answer, { request }) =>
      JSON.stringify(request ?? {}).includes('"conversation":[]')
        ? { status: 422, response: { detail: '<any>' } }
        : answer,
  },
  {
    reason: 'a group of events in which nothing was said is no turn, so it fails nothing',
    change: inside((object) => {
      const turns = object['evalMetricResultPerInvocation'];
      if (!Array.isArray(turns)) return object;
      const isSilent = (turn: Json) =>
        JSON.stringify((turn as Recorded)['actualInvocation']).includes('"userContent":{"parts":[]}');
      if (!turns.some(isSilent)) return object;
      const overall = (object['overallEvalMetricResults'] as Recorded[]).map((one) =>
        one['evalStatus'] === 4 ? one : { ...one, score: '<any>', evalStatus: '<any>' },
      );
      const said = turns.filter((turn) => !isSilent(turn));
      return {
        ...object,
        finalEvalStatus: '<any>',
        overallEvalMetricResults: overall,
        evalMetricResultPerInvocation: said,
      };
    }),
  },
  {
    reason: 'results come in the order of the set',
    change: (answer) => ({ ...answer, response: inOrder(answer.response) }),
  },
  {
    reason: 'the times of a turn are left out, which google-adk 2.2.0 refuses',
    change: inside((object) => without(object, 'duration', 'modelDuration', 'toolDuration')),
  },
  {
    reason: 'events without content are left out, which google-adk 2.2.0 refuses',
    change: inside((object) => {
      const { invocationEvents } = object;
      if (!Array.isArray(invocationEvents)) return object;
      const kept = invocationEvents.filter((event) => isObject(event) && 'content' in event);
      return {
        ...object,
        invocationEvents: kept.map((event) => without(event as never, 'usageMetadata', 'modelVersion')),
      };
    }),
  },
  {
    reason: 'a result says each thing once: the course of a turn in the older form, efficiency, no empty details',
    change: inside((object) => {
      const results = (of: Json | undefined) =>
        Array.isArray(of) ? of.filter((one) => !isObject(one) || one['evalStatus'] !== 4) : of;
      const lists = ['evalMetricResults', 'overallEvalMetricResults'] as const;
      const filtered = Object.fromEntries(
        lists.flatMap((name) => (name in object ? [[name, results(object[name])]] : [])),
      );
      const details = isObject(object['details']) && Object.keys(object['details']).length === 0 ? ['details'] : [];
      const changed = without(
        { ...object, ...filtered } as never,
        'appDetails',
        'sessionDetails',
        'customFunctionPath',
        ...details,
      );
      const isTurn = ['actualInvocation', 'expectedInvocation'].filter((name) => name in changed);
      for (const name of isTurn) {
        const turn = changed[name] as { [name: string]: Json };
        const data = turn['intermediateData'] as { invocationEvents?: Json } | undefined;
        changed[name] = { ...turn, intermediateData: courseOf(data?.invocationEvents ?? []) };
      }
      return changed;
    }),
  },
  {
    reason: 'the defaults of a criterion are not repeated',
    change: inside((object) => without(object, 'includeIntermediateResponsesInFinal')),
  },
  {
    reason: 'a case begins with the state of its session; its placeholders are empty only where that has none',
    change: ({ status, response }, { path, response: recorded }) => ({
      status,
      response: everywhere(response, (object) =>
        isObject(object['sessionInput']) && !path.endsWith('s-empty') && !isMadeByHand(recorded)
          ? { ...object, sessionInput: { ...object['sessionInput'], state: { city: 'Rome' } } }
          : object,
      ),
    }),
  },
  {
    reason: 'what there is already is 409 (specification)',
    change: (answer) => (/already exists/.test(detailOf(answer)) ? { ...answer, status: 409 } : answer),
  },
  {
    reason: 'what is absent is named',
    change: (answer, { request }) =>
      detailOf(answer) === 'Session not found' && isObject(request)
        ? { ...answer, response: { detail: `Session not found: ${request['sessionId'] as string}` } }
        : answer,
  },
  {
    reason: 'a set can be read and deleted',
    change: (answer, { method, path }) => {
      if (!isSetPath(path) || detailOf(answer) !== 'Not Found') return answer;
      return { status: 200, response: method === 'DELETE' ? null : { eval_set_id: path.split('/').at(-1) ?? '' } };
    },
  },
  {
    reason: 'a new set keeps its name and its cases',
    change: (answer, { request }) => {
      const set = isObject(request) ? (request['evalSet'] ?? request['eval_set']) : undefined;
      if (answer.status !== 200 || !isObject(set)) return answer;
      const { name = set['eval_set_id'] ?? '', eval_cases = [] } = set;
      return { ...answer, response: { ...(answer.response as object), name, eval_cases } };
    },
  },
  {
    reason: 'a control character in an id is refused as in every id',
    change: (answer, { request }) =>
      /Invalid Eval Set ID/.test(detailOf(answer)) && JSON.stringify(request ?? '').includes('\\n')
        ? { status: 422, response: { detail: '<any>' } }
        : answer,
  },
  {
    reason: 'a case that a run names and that is absent is 404',
    change: (answer, { path, request }) =>
      path.endsWith('/run') && JSON.stringify(request).includes('"nope"')
        ? { status: 404, response: { detail: 'Eval case `nope` not found in eval set `alpha`.' } }
        : answer,
  },
  {
    reason: 'a failed case says why and keeps its turns; a metric that could not run says why',
    change: inside((object) => {
      if (object['finalEvalStatus'] === 2 && (object['overallEvalMetricResults'] as Json[]).length === 0) {
        return {
          ...without(object, 'overallEvalMetricResults', 'evalMetricResultPerInvocation'),
          error: '<any>',
          failedTurn: '<any>',
        };
      }
      return object;
    }),
  },
  {
    reason: 'sessions are listed last updated first',
    change: (answer, { path }) =>
      path.endsWith('/sessions') && Array.isArray(answer.response)
        ? { ...answer, response: [5, 6, 4, 3, 2, 1].flatMap((n) => (answer.response as Json[])[n - 1] ?? []) }
        : answer,
  },
];

/** Recorded events in the older form, which the bundled UI reads. */
function courseOf(events: Json): Json {
  const contents = events as { author: Json; content?: { parts?: Recorded[] } }[];
  const parts = contents.flatMap(({ content }) => content?.parts ?? []);
  const texts = contents.flatMap(({ author, content }): Json[] => {
    const said = (content?.parts ?? []).filter((part) => 'text' in part);
    return said.length > 0 ? [[author, said]] : [];
  });
  return {
    toolUses: parts.flatMap(({ functionCall }) => functionCall ?? []),
    toolResponses: parts.flatMap(({ functionResponse }) => functionResponse ?? []),
    intermediateResponses: texts,
  };
}
