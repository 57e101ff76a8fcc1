import { type Mutant, change } from './mutant.ts';

/** Breaks the rules of evaluation one at a time: cases, metrics, the reading of judges, files, statistics. */
export const EVALUATION_MUTANTS: Mutant[] = [
  {
    name: 'evaluation: makes a turn of a group in which nothing was said',
    changes: change('toTurnParts', '.filter((turn) => turn.some(({ content }) => content))', ''),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: keeps rewound invocations',
    changes: change('toTurnParts', 'Map.groupBy(withoutRewound(events),', 'Map.groupBy(events,'),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: loses the calls of a long-running final event',
    changes: change(
      'toParts',
      'event === finalEvent && getFunctionCalls(content).length === 0',
      'event === finalEvent',
    ),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: keeps results of code and empty texts',
    changes: change('toEvalInvocations', '!isAnswer && saysSomething(content)', '!isAnswer'),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: takes the first final event for the answer',
    changes: change('toParts', 'agentEvents.findLast(isFinalResponse)', 'agentEvents.find(isFinalResponse)'),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: takes the first user event for the question',
    changes: change(
      'toQuestion',
      'events.findLast((event) => isOfUser(event)',
      'events.find((event) => isOfUser(event)',
    ),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: fills scoped placeholders',
    changes: change('withPlaceholders', '/\\{([\\p{L}\\p{N}_]+)\\}/gu', '/\\{([\\p{L}\\p{N}_:]+)\\}/gu'),
    tests: ['eval-case'],
  },
  {
    name: 'evaluation: stores both kinds of intermediate data',
    changes: change(
      'withoutToolUses',
      'toolUses, toolResponses: _responses, intermediateResponses: _texts, ...eventData } = data',
      'toolUses, ...eventData } = data',
    ),
    tests: ['intermediate-data'],
  },
  {
    name: 'evaluation: ignores edited arguments',
    changes: change('withoutToolUses', 'toolUses.length !== calls.length', 'toolUses.length >= 0'),
    tests: ['intermediate-data'],
  },
  {
    name: 'evaluation: does not normalise characters',
    changes: change('toWords', ".normalize('NFKC')", ''),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: parts ideographs like letters',
    changes: change('WORD', '${ALONE}|', ''),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: parts words at marks',
    changes: change('FIRST', String.raw`--\p{M}`, ''),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: stems short words',
    changes: change('ENGLISH', '{4,', '{3,'),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: stems words with accents',
    changes: change('ENGLISH', '[a-z0-9]', '.'),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: counts a repeated word without end',
    changes: change('rouge1', 'unmatched.set(word, count - 1);', ''),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: scores precision alone',
    changes: change('rouge1', '(2 * precision * recall) / (precision + recall)', 'precision'),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: leaves thoughts out of the text',
    changes: change(
      'getText',
      '.flatMap(({ text }) => (text ? [text] : []))',
      '.flatMap(({ text, thought }) => (text && !thought ? [text] : []))',
    ),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: joins parts without a line feed',
    changes: change('getText', ".join('\\n');", ".join('');"),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: knows no irregular words',
    changes: change('stem', 'IRREGULAR.get(word);', 'IRREGULAR.get(`-${word}`);'),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: takes the longest suffix instead of the first',
    changes: change(
      'replaceFirst',
      'rules.find(([suffix]) => word.endsWith(suffix));',
      'rules.findLast(([suffix]) => word.endsWith(suffix));',
    ),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: turns y after a vowel into i',
    changes: change('stem', ".endsWith('c')) result =", '.length > 0) result ='),
    tests: ['response-match'],
  },
  {
    name: 'evaluation: takes true for 1',
    changes: change('toSortedText', ': value,', ": typeof value === 'boolean' ? Number(value) : value,"),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: minds the order of keys',
    changes: change('toSortedText', '.toSorted(([one], [other]) => (one < other ? -1 : 1))', ''),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: takes absent arguments for empty ones',
    changes: change('toCallText', 'args ?? null', 'args ?? {}'),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: takes one call for two expected ones',
    changes: change('takeCalls', '?.pop()', '?.at(-1)'),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: allows other calls between in EXACT',
    changes: change('trajectoryMatch', "else if (matchType === 'EXACT') return 0;", ''),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: forgets ignoreArgs',
    changes: change('trajectoryMatch', 'toCallText(call, ignoreArgs) ===', 'toCallText(call) ==='),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: looks at the arguments of unequal calls first',
    changes: change(
      'matchingArguments',
      'const exact = takeCalls(actual, expected, takenIndexes);',
      'const exact = takeCalls(actual, expected, takenIndexes, true);',
    ),
    tests: ['trajectory'],
  },
  {
    name: 'evaluation: passes above the threshold only',
    changes: change('toStatus', 'score >= threshold', 'score > threshold'),
    tests: ['status'],
  },
  {
    name: 'evaluation: takes what was not evaluated for 0',
    changes: change('toStatus', "if (score === null) return 'NOT_EVALUATED';", "if (score === null) return 'FAILED';"),
    tests: ['status'],
  },
  {
    name: 'evaluation: lets a passed metric hide a failed one',
    changes: change('toFinalStatus', "if (statuses.includes('FAILED')) return 'FAILED';", ''),
    tests: ['status'],
  },
  {
    name: 'evaluation: counts missing scores in the mean',
    changes: change('toOverall', 'score, 0) / valid.length', 'score, 0) / scores.length'),
    tests: ['status'],
  },
  {
    name: 'evaluation: reads the threshold beside the criterion',
    changes: change(
      'readCriterion',
      'toSchema(criterion ?? { threshold })',
      'toSchema(threshold == null ? criterion : { threshold })',
    ),
    tests: ['criteria'],
  },
  {
    name: 'evaluation: takes any match type for EXACT',
    changes: change('matchType', 'if (!match) context', 'if (!match && !context) context'),
    tests: ['criteria'],
  },
  {
    name: 'evaluation: takes unknown options of a judge',
    changes: change('judgeMembers', '.strictObject({', '.looseObject({'),
    tests: ['criteria'],
  },
  {
    name: 'evaluation: takes 0 samples',
    changes: change('laxCount', 'count >= 1', 'count >= 0'),
    tests: ['criteria'],
  },
  {
    name: 'evaluation: adds the reported total of tokens',
    changes: change(
      'countTokens',
      'totalTokens: total([...input, ...output]),',
      'totalTokens: usages.at(-1)?.totalTokenCount ?? undefined,',
    ),
    tests: ['efficiency'],
  },
  {
    name: 'evaluation: shows tokens that nobody reported as 0',
    changes: change('countTokens', 'counts.length > 0 ? sum(counts) : undefined', 'sum(counts)'),
    tests: ['efficiency'],
  },
  {
    name: 'evaluation: counts the model calls of the old form as 0',
    changes: change('countInferenceCalls', '.length ?? null;', '.length ?? 0;'),
    tests: ['efficiency'],
  },
  {
    name: 'evaluation: lets the framework take negative time',
    changes: change('toDurations', 'Math.max(0, rest)', 'rest'),
    tests: ['efficiency'],
  },
  {
    name: 'evaluation: divides by the untimed turns too',
    changes: change('toEfficiency', 'toMeans(turns.map(toDurations))', 'toMeans(turns.map(toDurations), turns.length)'),
    tests: ['efficiency'],
  },
  {
    name: 'evaluation: takes the quantile of 90 %',
    changes: change('Z_95', 'const Z_95 = 1.959963984540054;', 'const Z_95 = 1.6448536269514722;'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: draws with replacement',
    changes: change('allFrom', 'Math.max(0, these - drawn) / (total - drawn)', 'these / total'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: tests one side only',
    changes: change('signTest', 'Math.min(1, 2 * tail)', 'Math.min(1, tail)'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: halves in doubles instead of logarithms',
    changes: change('signTest', 'let term = -pairs * Math.LN2;', 'let term = Math.log(0.5 ** pairs);'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: takes agreement by chance for agreement',
    changes: change('cohensKappa', '(observed - chance) / (1 - chance)', 'observed'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: takes a run that won for a regression',
    changes: change('compareRuns', 'pTwoSided < 0.05 && lost.length > won.length', 'pTwoSided < 0.05'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: overlooks a case that got worse',
    changes: change('compareRuns', ' || worse.length > 0;', ';'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: takes a case that always passes for flaky',
    changes: change('isFlaky', 'passed > 0 && passed < trials', 'passed > 0'),
    tests: ['statistics'],
  },
  {
    name: 'evaluation: does not ask again after a failure',
    changes: change('callJudge', 'if (error instanceof LimitError) throw error; return judge(prompt);', 'throw error;'),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: decides a tie for the agent',
    changes: change('majority', 'length * 2 > votes.length', 'length * 2 >= votes.length'),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: decides by one sample of five',
    changes: change(
      'toTurnScore',
      'readings.length > 0 && readings.length * 2 >= requestedCount',
      'readings.length > 0',
    ),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: opens all calls at once',
    changes: change('takeSamples', 'Math.min(parallelismLimit, numSamples)', 'numSamples'),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: reads verdicts in any case',
    changes: change(
      'readFinalResponseVerdict',
      'if (valid !== undefined) return toVerdict(valid);',
      'if (valid !== undefined) return toVerdict(valid.toLowerCase());',
    ),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: asks about the question of the actual turn',
    changes: change(
      'finalResponsePrompt',
      'question: getText(expected.userContent)',
      'question: getText(actual.userContent)',
    ),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: always shows the texts before the answer',
    changes: change(
      'getAnswer',
      'const before = whole ? getContents(intermediateData)',
      'const before = !whole || whole ? getContents(intermediateData)',
    ),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: takes a harmful answer for harmless',
    changes: change('readSafety', "'unsafe' ? 0 : undefined", "'unsafe' ? 1 : undefined"),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: leaves unread turns out of the share of good ones',
    changes: change(
      'simulatorQuality',
      'passed / turns.length',
      'passed / turns.filter(({ score }) => score !== null).length',
    ),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: does not ask how the dialogue ended',
    changes: change('simulatorQuality', 'if (ended === 0)', 'if (ended === 2)'),
    tests: ['verdicts'],
  },
  {
    name: 'evaluation: pairs properties and verdicts of other counts',
    changes: change(
      'fromBlocks',
      'if (rationales.length !== properties.length || verdicts.length !== properties.length) return [];',
      '',
    ),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: ignores the ids of rubrics',
    changes: change('fromBlocks', 'rubrics.find(({ rubricId }) => rubricId === id) ??', ''),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: takes a property word by word',
    changes: change('plain', ".replaceAll(/\\s+/g, ' ')", ''),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: counts a rubric without verdict as no',
    changes: change('decideRubrics', 'scores.length === 0 ? null : majority(scores)', 'majority(scores)'),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: takes the mean of the turns for that of the rubrics',
    changes: change(
      'toMetricScore',
      'return { score: mean(all), turns, rubricScores };',
      'return { score: toOverall(turns.map(({ score }) => score)), turns, rubricScores };',
    ),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: reads all turns with the rubrics of the last',
    changes: change(
      'rubricsOfTurns',
      'rubrics: rubricsInForce(metric, criterion, pair) }',
      'rubrics: rubricsInForce(metric, criterion, pairs.at(-1)) }',
    ),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: takes rubrics of any type',
    changes: change('rubricsInForce', '.filter(({ type }) => type === metric.type)', ''),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: judges the dialogue on its first turn',
    changes: change('rubricsOfDialogue', 'place === pairs.length - 1 ? last', 'place === 0 ? last'),
    tests: ['rubrics'],
  },
  {
    name: 'evaluation: takes courtesy for a hallucination',
    changes: change('readLabels', "word === 'supported' || word === 'not_applicable'", "word === 'supported'"),
    tests: ['hallucinations'],
  },
  {
    name: 'evaluation: judges the texts before the answer always',
    changes: change('listTexts', 'const early = all ', 'const early = all || steps\n'),
    tests: ['hallucinations'],
  },
  {
    name: 'evaluation: hides the earlier turns from the judge',
    changes: change('hallucinations', '    earlier.push(actual); ', ''),
    tests: ['hallucinations'],
  },
  {
    name: 'evaluation: writes events without content',
    changes: change('withoutSilentEvents', '      return event.content;', '      return true;'),
    tests: ['eval-set-file'],
  },
  {
    name: 'evaluation: writes members that some version refuses',
    changes: change('writeCase', 'isOpen: () => false', 'isOpen: () => true'),
    tests: ['eval-set-file'],
  },
  {
    name: 'evaluation: writes defaults',
    changes: change(
      'isDefault',
      'Object.hasOwn(DEFAULTS, name) && DEFAULTS[name] === JSON.stringify(value)',
      'Object.hasOwn(DEFAULTS, name) && value === undefined',
    ),
    tests: ['eval-set-file'],
  },
  {
    name: 'evaluation: writes bytes in the other alphabet',
    changes: change('withUrlSafeBytes', '? toUrlSafe(member)', '? member'),
    tests: ['eval-set-file'],
  },
  {
    name: 'evaluation: refuses an old file',
    changes: change('isOldFile', 'Array.isArray(json)', 'Array.isArray(json) && json.length > 9'),
    tests: ['eval-set-file'],
  },
  {
    name: 'evaluation: forgets the other spelling of a criterion',
    changes: change('toMetric', 'criterionSpelling.toSchema(value)', 'value'),
    tests: ['test-config'],
  },
  {
    name: 'evaluation: keeps empty ids of a selector',
    changes: change('parseSelectors', ".filter((id) => id.trim() !== '')", ''),
    tests: ['test-config'],
  },
  {
    name: 'evaluation: hears the signal in lower case only',
    changes: change('nextMessage', 'text.toLowerCase().includes(STOP_SIGNAL)', 'text.includes(STOP_SIGNAL)'),
    tests: ['simulated-user'],
  },
  {
    name: 'evaluation: does not count the first message',
    changes: change('nextMessage', 'dialogue.length >= limit', 'dialogue.length > limit'),
    tests: ['simulated-user'],
  },
  {
    name: 'evaluation: takes silence for the end',
    changes: change(
      'nextMessage',
      "if (text.trim() === '') throw new InvalidError('The simulated user said nothing.');",
      "if (text.trim() === '') return { status: 'stop_signal_detected' };",
    ),
    tests: ['simulated-user'],
  },
  {
    name: 'evaluation: hides the metrics that could not run',
    changes: change('scoreCase', '[...new Set([...unevaluatedMetrics, ...failedMetrics])]', '[]'),
    tests: ['score-case'],
  },
  {
    name: 'evaluation: lets a case pass that a metric could not be computed of',
    changes: change('scoreCase', 'failedMetrics.length > 0 ? withoutPass(status) : status', 'status'),
    tests: ['score-case'],
  },
  {
    name: 'evaluation: lets one metric that cannot run end the others',
    changes: change('scoreMetric', 'if (!(error instanceof MetricError)) throw error;', 'throw error;'),
    tests: ['score-case'],
  },
  {
    name: 'evaluation: pairs conversations of other lengths',
    changes: change(
      'pairTurns',
      'conversation && conversation.length !== actual.length',
      'conversation && conversation.length < actual.length',
    ),
    tests: ['score-case'],
  },
  {
    name: 'evaluation: forgets the rubrics of the case',
    changes: change('pairTurns', '...(rubrics ?? []), ...(expected', '...(expected'),
    tests: ['score-case'],
  },
  {
    name: 'evaluation: takes no loss back from a process that lives',
    changes: change('runLeasedQueue', 'if (!losses || !holder || holder.lives) return;', 'return;'),
    tests: ['leased-queue'],
  },
  {
    name: 'evaluation: ends a case in which another process has gone on with a turn',
    changes: change('isPassing', 'UnavailableError, LeaseLostError]', 'UnavailableError]'),
    tests: ['eval-run-ends'],
    only: 'another process has taken over',
  },
];
