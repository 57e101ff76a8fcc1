-- The words by which memories are found. Text search takes words from blank to blank, and an address or a file name as
-- one word: here their parts are words too, and text of scripts without blanks (Chinese, Japanese, Thai …) or with
-- endings at its words (Korean) is cut into pieces of one and two characters.

-- Pieces of the runs of such scripts: of two characters, and with p_singles of one.
create function memory_pieces(p_text text, p_singles boolean) returns text language sql immutable as $$
  select string_agg(pieces, ' ')
  from regexp_matches(p_text, E'[\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\uff66-\\uff9f\\U00020000-\\U0003ffff]+', 'g') found(runs),
    lateral (
      select string_agg(substr(runs[1], start, size), ' ') as pieces
      from generate_series(1, length(runs[1])) start, generate_series(1, 2) size
      where start + size - 1 <= length(runs[1]) and (size = 2 or p_singles or length(runs[1]) = 1)) cut
$$;
comment on function memory_pieces is 'Pieces of one and two characters of texts of scripts without blanks.';

-- Long words are cut: PostgreSQL needs the square of their length, 90 s for a_a_… of 64 KB.
create function memory_words(p_text text, p_singles boolean) returns tsvector language sql immutable as $$
  select to_tsvector('simple', concat_ws(' ', regexp_replace(p_text, E'(\\S{128})', E'\\1 ', 'g'),
                                         regexp_replace(regexp_replace(p_text, '[^[:alnum:]]+', ' ', 'g'), E'(\\S{128})', E'\\1 ', 'g'),
                                         memory_pieces(p_text, p_singles)))
$$;
comment on function memory_words is 'The words by which a memory is found.';

-- Any of the words of a question is enough. Lexemes are quoted, since a question is text and no query.
create function memory_words_asked(p_text text) returns tsquery language sql immutable as $$
  select coalesce(string_agg('''' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || '''', ' | '), '')::tsquery
  from unnest(memory_words(p_text, false))
$$;
comment on function memory_words_asked is 'A question as a search for any of its words.';
